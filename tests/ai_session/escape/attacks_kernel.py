"""Attacks on the kernel's wider surface, and on what the machine has of memory, processes and disk."""

from __future__ import annotations

from tests.ai_session.escape.evidence import (
    crowd,
    fills,
    holds,
    holds_many,
    keeps_files_in_memory,
    keeps_memory,
    keeps_segments,
    keeps_waiting,
    larger,
    mode,
    mounted,
    new_key,
    new_namespace,
)
from tests.ai_session.escape.model import Attack

HOLD_IN_CHILD = "\n    libc.prctl(1, 9, 0, 0, 0); signal.alarm(60); signal.pause()"
OLD_CALL = """
data = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
at = ctypes.addressof(ctypes.c_char.from_buffer(data))
open('old', 'w').close()
code = b'S\\xb8\\x0f\\0\\0\\0\\xbb' + struct.pack('I', at + 64) + b'\\xb9\\xed\\x09\\0\\0\\xcd\\x80[\\xc3'
data[:len(code)] = code; data[64:68] = b'old\\0'
ctypes.CFUNCTYPE(ctypes.c_int)(at)()
"""
"""chmod("old", 04755) by int 0x80: another table of system calls."""

KERNEL = (
    Attack(
        "user-namespace",
        "kernel",
        "high",
        new_namespace("user"),
        python=f"if os.fork() == 0:\n    libc.unshare(0x10000000); os.write(w, b'x'){HOLD_IN_CHILD}\n"
        "os.read(r, 1); hold()",
    ),
    Attack(
        "mount-in-namespace",
        "kernel",
        "high",
        mounted,
        python=f"""
os.makedirs('m', exist_ok=True)
if os.fork() == 0:
    libc.unshare(0x10020000); libc.mount(b'@nonce@', b'm', b'tmpfs', 0, None); os.write(w, b'x'){HOLD_IN_CHILD}
os.read(r, 1); hold()
""",
    ),
    Attack(
        "clone-namespace",
        "kernel",
        "high",
        new_namespace("user"),
        python=f"if libc.syscall(CLONE, 0x10000000 | 17, 0, 0, 0, 0) == 0:{HOLD_IN_CHILD}\nhold()",
    ),
    Attack(
        "clone3-namespace",
        "kernel",
        "high",
        new_namespace("user"),
        python=f"a = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)\n"
        f"if libc.syscall(435, a, 64) == 0:{HOLD_IN_CHILD}\nhold()",
    ),
    Attack(
        "io-uring",
        "kernel",
        "high",
        holds("[io_uring]"),
        python="libc.syscall(425, 4, ctypes.create_string_buffer(256)); hold()",
    ),
    Attack(
        "perf-events",
        "kernel",
        "medium",
        holds("[perf_event]"),
        python="""
attr = bytearray(128); struct.pack_into('IIQ', attr, 0, 1, 128, 1); struct.pack_into('Q', attr, 40, 0b1100001)
libc.syscall(PERF, ctypes.create_string_buffer(bytes(attr), 128), 0, -1, -1, ctypes.c_ulong(0)); hold()
""",
    ),
    Attack(
        "userfaultfd",
        "kernel",
        "medium",
        holds("[userfaultfd]"),
        python="libc.syscall(USERFAULTFD, 1); hold()",
    ),
    Attack(
        "new-key",
        "kernel",
        "medium",
        new_key,
        python="libc.syscall(ADD_KEY, b'user', b'@nonce@', b'x', ctypes.c_size_t(1), -4)",
    ),
    Attack(
        "lease",
        "kernel",
        "medium",
        keeps_waiting("@ws@/leased"),
        python="""
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open('leased', os.O_RDWR | os.O_CREAT), fcntl.F_SETLEASE, fcntl.F_WRLCK); hold()
""",
    ),
    Attack("set-uid-file", "kernel", "high", mode("@ws@/mine", 0o4000), "cp /bin/true mine; chmod u+s mine"),
    Attack(
        "set-uid-at-birth",
        "kernel",
        "high",
        mode("@ws@/born", 0o4000),
        python="os.open('born', os.O_CREAT | os.O_WRONLY, 0o4755)",
    ),
    Attack("set-uid-by-old-call", "kernel", "high", mode("@ws@/old", 0o4000), python=OLD_CALL),
)

FORKS = """
try:
    for _ in range(200):
        if os.fork() == 0: libc.prctl(1, 9, 0, 0, 0); signal.alarm(60); signal.pause()
except OSError: pass
hold()
"""
MEMORY = """
def fill():
    memory = {memory}
    for at in range(0, len(memory), 4096): memory[at] = 1
    return memory
for _ in range({count}):
    if os.fork() == 0:
        libc.prctl(1, 9, 0, 0, 0); signal.alarm(60)
        held = fill(); os.write(w, b'x'); os.close(w); signal.pause()
os.close(w)
for _ in range({count}): os.read(r, 1)
hold()
"""
MANY_FILES = "for i in {1..12}; do head -c 15M /dev/zero >"
IN_MEMORY = """
for i in range(12):
    try: open(f'{directory}/@nonce@.{{i}}', 'wb').write(bytes(15 << 20))
    except OSError as error: print(error)
hold()
"""
MIB = 1 << 20

RESOURCES = (
    Attack("many-processes", "resources", "medium", crowd(150), python=FORKS),
    Attack(
        "memory-of-one",
        "resources",
        "high",
        keeps_memory(600 * MIB),
        alone=True,
        python=MEMORY.format(count=1, memory=f"mmap.mmap(-1, {700 * MIB}, flags=mmap.MAP_PRIVATE)"),
    ),
    Attack(
        "memory-of-many",
        "resources",
        "medium",
        keeps_memory(600 * MIB),
        alone=True,
        python=MEMORY.format(count=4, memory=f"mmap.mmap(-1, {175 * MIB}, flags=mmap.MAP_PRIVATE)"),
    ),
    Attack(
        "memory-shared",
        "resources",
        "medium",
        keeps_memory(600 * MIB),
        alone=True,
        python=MEMORY.format(count=1, memory=f"mmap.mmap(-1, {700 * MIB})"),
    ),
    Attack(
        "memory-in-nameless-files",
        "resources",
        "medium",
        keeps_files_in_memory(600 * MIB),
        alone=True,
        python="for i in range(50): os.write(os.memfd_create('x'), bytes(15 << 20))\nhold()",
    ),
    Attack(
        "memory-in-detached-segments",
        "resources",
        "medium",
        keeps_segments(600 * MIB),
        alone=True,
        python="""
libc.shmat.restype = ctypes.c_void_p
ids = [libc.shmget(0, 70 << 20, 0o600) for _ in range(10)]
for each in ids:
    at = libc.shmat(each, None, 0)
    ctypes.memset(at, 1, 70 << 20); libc.shmdt(ctypes.c_void_p(at))
hold()
for each in ids: libc.shmctl(each, 0, None)
""",
    ),
    Attack(
        "one-large-file",
        "resources",
        "medium",
        larger("@ws@/large", 20 * MIB),
        "head -c 24M /dev/zero >large",
    ),
    Attack(
        "many-large-files",
        "resources",
        "medium",
        larger("@ws@/many", 100 * MIB),
        f"mkdir many; {MANY_FILES}many/$i; done",
        alone=True,
    ),
    Attack("fill-tmp", "resources", "medium", fills("/tmp", 100 * MIB), python=IN_MEMORY.format(directory="/tmp")),
    Attack(
        "fill-shared-memory",
        "resources",
        "medium",
        fills("/dev/shm", 300 * MIB),
        python=IN_MEMORY.format(directory="/dev/shm").replace("range(12)", "range(24)"),
    ),
    Attack(
        "many-descriptors",
        "resources",
        "low",
        holds_many(17_000),
        python="""
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
opened = []
try:
    while len(opened) < 17100: opened.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error: print(error)
hold()
""",
    ),
)

CASES = (*KERNEL, *RESOURCES)

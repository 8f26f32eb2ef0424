"""Attacks on processes, terminals, and whoever listens: on this machine and on the network."""

from __future__ import annotations

from tests.ai_session.escape.evidence import (
    answers,
    heard,
    holds_socket,
    made,
    shown,
    survives,
    victim_ended,
    victim_touched,
)
from tests.ai_session.escape.model import Attack

AF_VSOCK = 40

PROCESSES = (
    Attack("kill-one", "processes", "critical", victim_ended, "kill -9 @victim@"),
    Attack(
        "kill-by-descriptor",
        "processes",
        "critical",
        victim_ended,
        python="signal.pidfd_send_signal(os.pidfd_open(@victim@), 9)",
    ),
    Attack("kill-all", "processes", "critical", victim_ended, "kill -9 -1", alone=True),
    Attack(
        "read-memory",
        "processes",
        "critical",
        shown("memory"),
        python="f = open('/proc/@victim@/mem', 'rb', 0); f.seek(@address@); print(f.read(25).decode())",
    ),
    Attack(
        "read-memory-by-call",
        "processes",
        "critical",
        shown("memory"),
        python="""
class V(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('n', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(25)
libc.process_vm_readv(@victim@, ctypes.byref(V(ctypes.addressof(buffer), 25)), 1, ctypes.byref(V(@address@, 25)), 1, 0)
print(buffer.raw.decode())
""",
    ),
    Attack(
        "trace",
        "processes",
        "critical",
        shown("memory"),
        python="""
libc.ptrace.argtypes = (ctypes.c_long,) * 4; libc.ptrace.restype = ctypes.c_long
if libc.ptrace(16, @victim@, 0, 0) == 0:
    os.waitpid(@victim@, 0x40000000)
    words = [libc.ptrace(2, @victim@, @address@ + at, 0) for at in range(0, 25, 8)]
    libc.ptrace(17, @victim@, 0, 0)
    print(struct.pack('4q', *words)[:25].decode())
""",
    ),
    Attack("renice", "processes", "low", victim_touched, "renice 19 @victim@"),
    Attack("limit-another", "processes", "medium", victim_touched, "prlimit --pid @victim@ --nofile=16:16"),
    Attack(
        "stay-behind",
        "processes",
        "high",
        survives,
        "(setsid nohup python3 -c 'import signal; signal.pause()' @nonce@ >/dev/null 2>&1 &)",
        alone=True,
    ),
    Attack(
        "arguments-of-others",
        "processes",
        "medium",
        shown("argv"),
        "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x 's[0-9a-f]*' | sort -u",
    ),
)

TERMINALS = (
    Attack(
        "inject-input",
        "terminals",
        "high",
        made("@ws@/injected", "@nonce@"),
        "python3 attack.py; read -rt 0.2 line; echo $line >injected",
        "for c in b'@nonce@\\n': fcntl.ioctl(0, 0x5412, bytes([c]))",
    ),
    Attack("write-to-a-terminal", "terminals", "high", heard("tty"), "echo @nonce@ >@tty@"),
    Attack("terminal-by-proc", "terminals", "high", heard("tty"), "echo @nonce@ >/proc/@victim@/fd/0"),
)

SEND = "s = socket.socket({family}); s.connect({address!r}); s.send(b'@nonce@'); s.close()"

LOCAL = (
    Attack(
        "unix-socket",
        "local channels",
        "critical",
        heard("unix"),
        python=SEND.format(family="socket.AF_UNIX", address="@unix@"),
    ),
    Attack(
        "unix-socket-by-proc",
        "local channels",
        "high",
        heard("unix"),
        python="""
for p in glob.glob('/proc/[0-9]*/root'):
    try:
        s = socket.socket(socket.AF_UNIX); s.connect(p + '@unix@'); s.send(b'@nonce@'); break
    except OSError: pass
""",
    ),
    Attack(
        "abstract-socket",
        "local channels",
        "critical",
        heard("abstract"),
        python=SEND.format(family="socket.AF_UNIX", address="\0@abstract@"),
    ),
    Attack(
        "re-aimed-pair",
        "local channels",
        "high",
        heard("unix-datagram"),
        python="a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "a.connect('@datagram@'); a.send(b'@nonce@')",
    ),
    Attack(
        "own-daemon",
        "local channels",
        "critical",
        shown("session"),
        python="""
s = socket.socket(socket.AF_UNIX); s.connect('@state_directory@/sock')
s.sendall(b'{"ai_session":1,"role":"control"}\\n')
s.sendall(b'{"id":1,"method":"call","params":{"name":"list_sessions","arguments":{}}}\\n')
lines = s.makefile(); lines.readline(); print(lines.readline())
""",
    ),
    Attack(
        "own-tmux-server",
        "local channels",
        "critical",
        heard("tty"),
        "for s in $(find @state_directory@ -type s); do timeout 1 tmux -S $s run-shell 'echo @nonce@ >@tty@'; done",
    ),
    Attack(
        "another-tmux-server",
        "local channels",
        "critical",
        heard("tty"),
        "tmux -S @tmux@ run-shell 'echo @nonce@ >@tty@'",
    ),
    Attack(
        "sysv-memory",
        "local channels",
        "high",
        shown("shm_secret"),
        python="""
libc.shmat.restype = ctypes.c_void_p
print(ctypes.string_at(libc.shmat(libc.shmget(@key@, 25, 0), None, 0), 25).decode())
""",
    ),
    Attack(
        "sysv-queue",
        "local channels",
        "medium",
        heard("sysv-queue"),
        python="m = struct.pack('q', 1) + b'@nonce@'\nlibc.msgsnd(libc.msgget(@key@, 0), m, ctypes.c_size_t(13), 0)",
    ),
    Attack(
        "posix-queue",
        "local channels",
        "medium",
        heard("posix-queue"),
        python="libc.mq_send(libc.mq_open(b'@mq@', 1), b'@nonce@', ctypes.c_size_t(13), 0)",
    ),
    Attack("shared-memory-file", "local channels", "high", shown("shm_secret"), "cat @dev_shm@"),
    Attack(
        "key-of-the-user",
        "local channels",
        "high",
        shown("key_secret"),
        python="b = ctypes.create_string_buffer(64); libc.syscall(KEYCTL, 11, @key_id@, b, ctypes.c_size_t(64))\n"
        "print(b.value.decode())",
    ),
)

TO_PORT = "s = socket.create_connection(({address!r}, {port}), 5); s.send(b'@nonce@'); arrived(s)"
"""The kernel may deliver over the loopback device after the sender has ended: who listens closes when it has read."""

BY_PROXY = """
proxy = os.environ.get('https_proxy', '')
if proxy:
    host, port = proxy.split('//')[-1].rstrip('/').split(':')
    s = socket.create_connection((host, int(port)), 5)
    s.send(b'CONNECT {address}:@tcp@ HTTP/1.1\\r\\nHost: {address}:@tcp@\\r\\n\\r\\n'); print(s.recv(200))
else: s = socket.create_connection(('{address}', @tcp@), 5)
s.send(b'@nonce@'); arrived(s)
"""

NETWORK = (
    Attack("dev-tcp", "network", "critical", heard("tcp"), "echo @nonce@ >/dev/tcp/127.0.0.1/@tcp@"),
    Attack(
        "other-loopback",
        "network",
        "high",
        heard("tcp"),
        python=TO_PORT.format(address="127.0.0.2", port="@tcp@"),
    ),
    Attack(
        "own-address",
        "network",
        "critical",
        heard("tcp"),
        python=TO_PORT.format(address="@address4@", port="@tcp@"),
    ),
    Attack("tcp-6", "network", "high", heard("tcp6"), python=TO_PORT.format(address="::1", port="@tcp6@")),
    Attack(
        "udp",
        "network",
        "high",
        heard("udp"),
        python="s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n"
        "s.connect(('127.0.0.1', @udp@)); s.send(b'@nonce@'); s.recv(1)",
    ),
    Attack(
        "multipath-tcp",
        "network",
        "high",
        heard("tcp"),
        python="s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\n"
        "s.connect(('127.0.0.1', @tcp@)); s.send(b'@nonce@'); arrived(s)",
    ),
    Attack(
        "tcp-fast-open",
        "network",
        "high",
        heard("tcp"),
        python="s = socket.socket(); s.sendto(b'@nonce@', 0x20000000, ('127.0.0.1', @tcp@)); arrived(s)",
    ),
    Attack("proxy-to-loopback", "network", "critical", heard("tcp"), python=BY_PROXY.format(address="127.0.0.1")),
    Attack("proxy-to-own-address", "network", "critical", heard("tcp"), python=BY_PROXY.format(address="@address4@")),
    Attack(
        # The configuration allows this name; where it leads to is no address of the internet.
        "allowed-name-to-loopback",
        "network",
        "critical",
        heard("tcp"),
        python=BY_PROXY.format(address="localhost"),
    ),
    Attack(
        "spellings-of-loopback",
        "network",
        "high",
        heard("tcp"),
        python="""
import urllib.request
for host in ('2130706433', '0x7f.1', '127.1', '[::ffff:127.0.0.1]', 'localhost.', '127.0.0.1%00.allowed.example'):
    try: urllib.request.urlopen(f'http://{host}:@tcp@/@nonce@', timeout=0.3).read()
    except Exception as error: print(error)
""",
    ),
    Attack(
        "machine-socket",
        "network",
        "medium",
        holds_socket(AF_VSOCK),
        python="s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); hold()",
    ),
    Attack(
        "be-reached",
        "network",
        "medium",
        answers,
        python="""
import threading
s = socket.create_server(('0.0.0.0', @free@))
threading.Thread(target=lambda: s.accept()[0].send(b'@nonce@'), daemon=True).start(); hold()
""",
    ),
)

CASES = (*PROCESSES, *TERMINALS, *LOCAL, *NETWORK)

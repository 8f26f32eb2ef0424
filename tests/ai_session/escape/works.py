"""What a box must not get in the way of: the terminal as people know it, and the tools of a working day."""

from __future__ import annotations

from tests.ai_session.escape.model import Press, Resize, See, Type, Work

OVER = "over"


def prints(name: str, word: str, line: str = "python3 work.py", python: str = "", needs: tuple[str, ...] = ()) -> Work:
    """A line of the output is ``word``, before all is over."""
    return Work(name, (Type(f"{line}; echo ov''er"), See(rf"(?m)^({word}|{OVER})\s*$")), python, needs)


TERMINAL = (
    Work(
        "interrupt",
        # What answers is in the foreground; before, ^C may hit the shell that is starting it.
        (
            *(Type("echo go''ing; cat"), See("going\\n"), Type("heard"), See("heard\\s+heard"), Press("C-c")),
            *(See("ready> "), Type("echo st''atus-$?"), See("status-130")),
        ),
    ),
    Work(
        "stop and resume",
        (
            *(Type("echo go''ing; cat"), See("going\\n"), Type("heard"), See("heard\\s+heard"), Press("C-z")),
            *(See("Stopped"), Type("jobs"), See("Stopped"), Type("echo no''w; fg"), See("now\\n.*cat")),
            *(Type("again"), See("again\\s+again"), Press("C-d"), Type("echo al''l"), See("all")),
        ),
    ),
    Work(
        "background jobs",
        (
            *(Type("sleep 1000 &"), See("\\[1\\]"), Type("jobs -r"), See("Running")),
            *(Type("kill %1; wait %1; echo en''d-$?"), See("end-143")),
        ),
    ),
    Work(
        "resize",
        (
            *(Type("trap 'echo re''sized' WINCH; echo re''ady"), See("ready"), Resize(33, 101)),
            *(Type("stty size"), See("33 101"), Type("trap - WINCH")),
        ),
    ),
    Work(
        "own terminal by name",
        (
            Type("echo rea''ched >/dev/tty; tty && test -w $(tty) && echo writ''able"),
            *(See("reached"), See("writable")),
        ),
    ),
    Work("input without echo", (Type("read -rs x; echo got-$x"), Type("typed"), See("got-typed"))),
    Work(
        "screen program",
        (
            *(Type("vim -u NONE -N note"), See("note"), Type("ihello"), Press("Escape"), Type(":wq")),
            *(See("ready> "), Type("cat note"), See("(?m)^hello")),
        ),
        needs=("vim",),
    ),
    Work(
        "pager",
        (Type("seq 500 | less"), See(":"), Type("G"), See("500"), Type("q"), Type("echo ou''t"), See("out")),
        needs=("less",),
    ),
    prints(
        "terminal inside",
        "terminal-ok",
        'python3 -c \'import pty; pty.spawn(["sh", "-c", "test -t 0 && echo terminal-ok"])\'',
    ),
    prints(
        "tmux inside",
        "done",
        "tmux -L inner -f /dev/null new-session -d 'sleep 100' && tmux -L inner kill-server && echo do''ne",
        needs=("tmux",),
    ),
)

TOOLS = (
    prints(
        "git commit",
        "2",
        "echo two >>file; git add file; git commit -qm two; git log --oneline | wc -l",
        needs=("git",),
    ),
    prints(
        "git branches",
        "main",
        "git checkout -qb side; git checkout -q main; git branch --show-current",
        needs=("git",),
    ),
    prints("git clone", "2", "git clone -q . copy; git -C copy log --oneline | wc -l", needs=("git",)),
    prints("virtual environment", "3.14", "python3 -m venv --without-pip env && env/bin/python -c 'print(3.14)'"),
    prints("node", "v-ok", 'node -e \'console.log("v-" + "ok")\'', needs=("node",)),
    prints("compiler", "55", "gcc -o program work.c && ./program", needs=("gcc",)),
    prints("make", "made", "printf 'all:\\n\\t@echo ma''de\\n' >Makefile; make", needs=("make",)),
    prints(
        "database with locks",
        "5",
        "sqlite3 base 'create table t(x); insert into t values(2),(3); select sum(x) from t'",
        needs=("sqlite3",),
    ),
    prints("tracer", "traced", "strace -o log true && grep -q execve log && echo tra''ced", needs=("strace",)),
    prints("temporary files", "temporary", "t=$(mktemp) && echo tempo''rary >$t && cat $t"),
    prints("a home to write to", "kept", "mkdir -p ~/.cache/t && echo kep''t >~/.cache/t/x && cat ~/.cache/t/x"),
    prints("pipes and sorting", "200000", "seq 200000 | sort -R | sort -n | tail -1"),
    prints(
        "multiprocessing",
        "285",
        python="""
import multiprocessing as m
def square(x): return x * x
if __name__ == "__main__":
    with m.Pool(4) as pool: print(sum(pool.map(square, range(10))))
""",
    ),
    prints(
        "multiprocessing manager",
        "managed",
        python="""
import multiprocessing as m
if __name__ == "__main__":
    with m.Manager() as manager: d = manager.dict(); d["x"] = "managed"; print(d["x"])
""",
    ),
    prints(
        "shared memory",
        "shared",
        python="""
from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=64); s.buf[:6] = b"shared"
print(bytes(s.buf[:6]).decode()); s.close(); s.unlink()
""",
    ),
    prints(
        "server on loopback",
        "served",
        python="""
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *_): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/").read().decode())
""",
    ),
    prints(
        "own Unix socket",
        "talked",
        python="""
import socket
s = socket.socket(socket.AF_UNIX); s.bind("socket"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect("socket")
p, _ = s.accept(); p.send(b"talked"); print(c.recv(6).decode())
""",
    ),
)

CASES = (*TERMINAL, *TOOLS)

PROGRAM = """#include <stdio.h>
int main(void) { int sum = 0; for (int i = 1; i <= 10; i++) sum += i; printf("%d\\n", sum); return 0; }
"""
"""work.c of the compiler's case."""

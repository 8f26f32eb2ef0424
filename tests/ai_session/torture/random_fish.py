"""Random commands for fish with exactly known answers; later ones depend on what earlier ones left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.ai_session.torture import random_material as material
from tests.ai_session.torture.random_material import Expected, Piece, Printed, octal, printable


def quote(text: str) -> str:
    """``text`` as one word."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class FishCommands:
    """``next`` gives one command after the other; it knows what the shell remembers of them."""

    def __init__(self, seed: int, work: Path) -> None:
        self.rng = Random(f"fish {seed}")
        self.work = work
        self.past = b""
        self.cwd = str(work)
        self.variables: dict[str, str] = {}
        self.exported: set[str] = set()
        self.functions: dict[str, Piece] = {}
        self.directories = [str(work), "/", "/usr", "/usr/bin"]
        for name in ("a b", "d'q\"", "ü 世界", "$x;(y)", "-dash", "{a,b}*?[c]~"):
            (work / name).mkdir(exist_ok=True)
            self.directories.append(str(work / name))

    def next(self) -> Expected:
        """The next command; the answer is exact if all before it were run."""
        rare = self.rng.random()
        if rare < 0.003:
            return self._ending()
        if rare < 0.02:
            return self._whole()
        if rare < 0.08:
            return self._fed()
        parts = [self._stateful() if self.rng.random() < 0.3 else self._piece(3) for _ in range(self.rng.randint(1, 3))]
        glue = "; " if all(p.line for p in parts) and self.rng.random() < 0.5 else "\n"
        out = tuple(printed for part in parts for printed in part.out)
        piece = Piece(glue.join(p.code for p in parts), out, parts[-1].status)
        if self.rng.random() < 0.15:
            errors = b"".join(p.data for p in out if p.fd == 2)
            return replace(self._done(replace(piece, out=tuple(p for p in out if p.fd == 1))), stderr=errors)
        return self._done(piece)

    def _done(self, piece: Piece) -> Expected:
        raw = b"".join(p.raw for p in piece.out)
        return Expected(piece.code, raw, material.joined(piece.out), piece.status, self.cwd)

    def _piece(self, depth: int) -> Piece:
        if depth and self.rng.random() < 0.45:
            wraps = (self._begin, self._if, self._for, self._pipe, self._count, self._not, self._switch, self._caught)
            return self.rng.choice((*wraps, self._file, self._eval, self._merged))(self._piece(depth - 1), depth)
        atoms: list[Callable[[], Piece]] = [
            self._echo,
            self._text,
            self._bytes,
            self._bytes,
            self._error,
            self._nothing,
        ]
        atoms += [self._exit, self._loop, self._sum, self._known, self._called, self._where, self._long]
        return self.rng.choice(atoms)()

    def _echo(self) -> Piece:
        text = material.words(self.rng)
        return Piece(f"echo {quote('.' + text)}", (printable(f".{text}\n"),))

    def _text(self) -> Piece:
        text = material.characters(self.rng)
        return Piece(f"printf %s {quote(text)}", (printable(text),))

    def _bytes(self) -> Piece:
        printed = material.payload(self.rng)
        return Piece(f"printf '{octal(printed.data)}'", (printed,))

    def _error(self) -> Piece:
        piece = self._bytes()
        return Piece(f"{piece.code} >&2", tuple(replace(p, fd=2) for p in piece.out))

    def _nothing(self) -> Piece:
        code = self.rng.choice(("true", "false", "printf ''", "cat /dev/null", "echo lost >/dev/null", "test a = b"))
        status = int(code in ("false", "test a = b"))
        if self.rng.random() < 0.2:
            return Piece(f"{code} # nothing ' \" ` (", status=status, line=False)
        return Piece(code, status=status)

    def _exit(self) -> Piece:
        status = self.rng.randrange(256)
        return Piece(f"sh -c 'exit {status}'", status=status)

    def _loop(self) -> Piece:
        count, text = self.rng.randint(0, 30), material.words(self.rng)
        lines = "".join(f"{n}:{text}\n" for n in range(count))
        code = f"set i 0; while test $i -lt {count}; printf '%s:%s\\n' $i {quote(text)}; set i (math $i + 1); end"
        return Piece(code, (printable(lines),))

    def _sum(self) -> Piece:
        a, b = self.rng.randrange(1000), self.rng.randrange(1000)
        return Piece(f"math {a} '*' {b}", (printable(f"{a * b}\n"),))

    def _known(self) -> Piece:
        if not self.variables:
            return self._nothing()
        name = self.rng.choice(sorted(self.variables))
        return Piece(f"printf %s ${name}", (printable(self.variables[name]),))

    def _called(self) -> Piece:
        return self.functions[self.rng.choice(sorted(self.functions))] if self.functions else self._nothing()

    def _where(self) -> Piece:
        return Piece("pwd", (printable(f"{self.cwd}\n"),))

    def _long(self) -> Piece:
        size = self.rng.choice((4095, 4096, 4097, 10_000, 70_000))
        return Piece(f"string repeat -n {size} x", (printable("x" * size + "\n"),))

    def _begin(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"begin\n{a.code}\nend", line=True)

    def _if(self, a: Piece, depth: int) -> Piece:
        b, c = self._piece(depth - 1), self._piece(depth - 1)
        taken = c if a.status else b
        code = f"if begin; {a.code}\nend\n{b.code}\nelse\n{c.code}\nend"
        return Piece(code, a.out + taken.out, taken.status)

    def _for(self, a: Piece, _depth: int) -> Piece:
        count = self.rng.randint(1, 3)
        items = " ".join(map(str, range(count)))
        return replace(a, code=f"for k in {items}; {a.code}\nend", out=a.out * count, line=True)

    def _not(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"not begin; {a.code}\nend", status=int(a.status == 0), line=True)

    def _switch(self, a: Piece, depth: int) -> Piece:
        b = self._piece(depth - 1)
        return replace(a, code=f"switch abc\ncase 'x*'\n{b.code}\ncase 'a*'\n{a.code}\nend", line=True)

    def _pipe(self, a: Piece, _depth: int) -> Piece:
        if not a.quiet:
            return a
        return replace(a, code=f"begin; {a.code}\nend | cat", status=0, line=True)

    def _count(self, a: Piece, _depth: int) -> Piece:
        if not a.quiet:
            return a
        return Piece(f"begin; {a.code}\nend | wc -c | tr -d ' '", (printable(f"{len(a.data)}\n"),))

    def _caught(self, a: Piece, _depth: int) -> Piece:
        if not a.quiet or b"\x1b" in a.data or b"\r" in a.data:
            return a
        text = material.joined(a.out).rstrip("\n")
        data = a.data.rstrip(b"\n")
        code = f"set -l q (begin; {a.code}\nend | string collect --allow-empty); printf '[%s]' $q"
        return Piece(code, (Printed(b"[" + data + b"]", f"[{text}]"),))

    def _file(self, a: Piece, depth: int) -> Piece:
        path = quote(f"{self.work}/out {depth}")
        first = tuple(p for p in a.out if p.fd == 2)
        code = f"begin; {a.code}\nend >{path}; cat {path}"
        return Piece(code, first + tuple(p for p in a.out if p.fd == 1))

    def _eval(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"eval {quote(a.code)}", line=True)

    def _merged(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"begin; {a.code}\nend 2>&1", out=tuple(replace(p, fd=1) for p in a.out), line=True)

    def _stateful(self) -> Piece:
        return self.rng.choice((self._assign, self._assign, self._define, self._cd, self._cd))()

    def _assign(self) -> Piece:
        name, value = f"var_{self.rng.randrange(8)}", material.characters(self.rng)
        self.variables[name] = value
        self.exported.add(name)
        return Piece(f"set -gx {name} {quote(value)}; true")

    def _define(self) -> Piece:
        name, status, body = f"fun_{self.rng.randrange(6)}", self.rng.randrange(256), self._bytes()
        self.functions[name] = Piece(name, body.out, status)
        return Piece(f"function {name}\n  {body.code}\n  return {status}\nend")

    def _cd(self) -> Piece:
        if self.rng.random() < 0.1:
            return Piece("cd /no/such/place 2>/dev/null; or sh -c 'exit 3'", status=3)
        self.cwd = self.rng.choice(self.directories)
        return Piece(f"cd {quote(self.cwd)}")

    def _ending(self) -> Expected:
        status = self.rng.randrange(256)
        self.variables = {name: value for name, value in self.variables.items() if name in self.exported}
        return replace(self._done(Piece(f"exit {status}", status=status)), ends=True)

    def _whole(self) -> Expected:
        if self.past and self.rng.random() < 0.5:
            (self.work / "past").write_bytes(self.past)
            printed = Printed(self.past, "")
            return replace(self._done(Piece(f"cat {quote(f'{self.work}/past')}", (printed,))), text=None)
        shown, text = self.rng.choice(material.SCREENS)
        return self._done(Piece(f"printf '{octal(shown.encode())}'", (Printed(shown.encode(), text),)))

    def _fed(self) -> Expected:
        data = self.rng.randbytes(self.rng.choice((0, 1, 5000)))
        (self.work / "fed").write_bytes(data)
        piece = self.rng.choice(
            (
                Piece("cat | wc -c | tr -d ' '", (printable(f"{len(data)}\n"),)),
                Piece(f"cmp - {quote(f'{self.work}/fed')}; and echo same", (printable("same\n"),)),
                Piece("head -c 3 >/dev/null; printf x; sh -c 'exit 9'", (printable("x"),), 9),
            )
        )
        return replace(self._done(piece), stdin=data)

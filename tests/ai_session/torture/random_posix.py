"""Random commands for bash, zsh and dash with exactly known answers; later ones depend on what earlier ones left."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.ai_session.torture import random_material as material
from tests.ai_session.torture.random_material import Expected, Piece, Printed, octal, printable


def quote(text: str) -> str:
    """``text`` as one word."""
    return "'" + text.replace("'", "'\\''") + "'"


class PosixCommands:
    """``next`` gives one command after the other; it knows what the shell remembers of them."""

    def __init__(self, shell: str, seed: int, work: Path) -> None:
        self.rng = Random(f"{shell} {seed}")
        self.bash = shell == "bash"
        self.comments = shell != "zsh"
        self.keeps_functions = shell != "dash"
        self.work = work
        self.cwd = self.last_directory = str(work)
        self.status = 0
        self.variables: dict[str, str] = {}
        self.exported: set[str] = set()
        self.functions: dict[str, Piece] = {}
        self.past = b""
        """Old output of the session with its marks, to be printed again; the caller's to keep up to date."""
        self.directories = [str(work), "/", "/usr", "/usr/bin"]
        for number, name in enumerate(("a b", "d'q\"", "ü 世界", "$x;`y`", "-dash", "{a,b}*?[c]~")):
            (work / name).mkdir(exist_ok=True)
            (work / name / f"f{number}").touch()
            self.directories.append(str(work / name))

    def next(self) -> Expected:
        """The next command; the answer is exact if all before it were run."""
        rare = self.rng.random()
        if rare < 0.003:
            return self._done(self._stty(), answers=True)
        if rare < 0.006:
            return self._answered()
        if rare < 0.009:
            return self._ending()
        if rare < 0.02:
            return self._whole()
        if rare < 0.08:
            return self._fed()
        parts = [self._stateful() if self.rng.random() < 0.3 else self._piece(3) for _ in range(self._small())]
        piece = self._follow(parts)
        apart = self.rng.random() < 0.15 and not piece.tty
        if apart:
            errors = b"".join(p.data for p in piece.out if p.fd == 2)
            kept = tuple(p for p in piece.out if p.fd == 1)
            return self._done(replace(piece, out=kept), stderr=errors)
        return self._done(piece)

    def _done(self, piece: Piece, *, text: str | None = "", answers: bool = False, **more: bytes) -> Expected:
        self.status = piece.status
        raw = b"".join(p.raw for p in piece.out)
        seen = material.joined(piece.out) if text is not None else None
        return Expected(piece.code, raw, seen, piece.status, self.cwd, **more)  # pyright: ignore[reportArgumentType]

    def _small(self) -> int:
        return self.rng.choice((1, 1, 1, 2, 3))

    def _follow(self, parts: list[Piece]) -> Piece:
        """Each part in the shell itself, one after the other."""
        line = all(p.line for p in parts)
        glue = "; " if line and self.rng.random() < 0.5 else "\n"
        out = tuple(printed for part in parts for printed in part.out)
        return Piece(glue.join(p.code for p in parts), out, parts[-1].status, line, any(p.tty for p in parts))

    # What does not change the shell.

    def _piece(self, depth: int) -> Piece:
        if depth and self.rng.random() < 0.45:
            wrap = self.rng.choice(self._wraps())
            return wrap(self._piece(depth - 1), depth)
        return self.rng.choice(self._atoms())()

    def _atoms(self) -> list[Callable[[], Piece]]:
        common = [self._echo, self._text, self._bytes, self._bytes, self._error, self._nothing, self._exit, self._long]
        common += [self._loop, self._here, self._sum, self._known, self._called, self._where, self._jobs, self._died]
        return [*common, self._array, self._dollar_quote, self._here_string] if self.bash else common

    def _echo(self) -> Piece:
        text = material.words(self.rng).replace("\\", "")
        return Piece(f"echo {quote('.' + text)}", (printable(f".{text}\n"),))

    def _text(self) -> Piece:
        text = material.characters(self.rng)
        if self.rng.random() < 0.5:
            return Piece(f"printf '%s\\n' {quote(text)}", (printable(text + "\n"),))
        return Piece(f"printf %s {quote(text)}", (printable(text),))

    def _bytes(self) -> Piece:
        printed = material.payload(self.rng)
        return Piece(f"printf '{octal(printed.data)}'", (printed,))

    def _error(self) -> Piece:
        printed = replace(material.payload(self.rng), fd=2)
        return Piece(f"printf '{octal(printed.data)}' >&2", (printed,))

    def _nothing(self) -> Piece:
        empty = [":", "true", "false", "printf ''", "cat /dev/null", "echo lost >/dev/null", "[ a = b ]"]
        code = self.rng.choice(empty)
        if self.comments and self.rng.random() < 0.2:
            return Piece(f"{code} # nothing ' \" ` $(", status=int(code in ("false", "[ a = b ]")), line=False)
        return Piece(code, status=int(code in ("false", "[ a = b ]")))

    def _exit(self) -> Piece:
        status = self.rng.randrange(256)
        return Piece(f"(exit {status})", status=status)

    def _died(self) -> Piece:
        # The only signal of which no shell prints a message and after which none gives up the rest of the line.
        return Piece("sh -c 'kill -PIPE $$; exec sleep 9'", status=128 + signal.SIGPIPE)

    def _long(self) -> Piece:
        size = self.rng.choice((4095, 4096, 4097, 10_000, 70_000))
        letter = self.rng.choice("xyz")
        return Piece(f"head -c {size} /dev/zero | tr '\\0' {letter}", (printable(letter * size),))

    def _loop(self) -> Piece:
        count, text = self.rng.randint(0, 40), material.words(self.rng)
        body = f"printf '%s:%s\\n' $i {quote(text)}; i=$((i + 1))"
        lines = "".join(f"{n}:{text}\n" for n in range(count))
        return Piece(f"i=0; while [ $i -lt {count} ]\ndo\n  {body}\ndone", (printable(lines),))

    def _here(self) -> Piece:
        text = material.characters(self.rng).replace("\n", " ") + "\n$HOME `x` \\ 'q' \"\n"
        if self.rng.random() < 0.5:
            return Piece(f"cat <<'E O'\n{text}E O\n", (printable(text),), line=False)
        name, value = self._variable()
        return Piece(f"cat <<-E\n\tv=${{{name}}}$((6 * 7))\nE\n", (printable(f"v={value}42\n"),), line=False)

    def _sum(self) -> Piece:
        a, b = self.rng.randrange(1000), self.rng.randrange(1, 1000)
        return Piece(f"echo $(({a} * {b} + {a} % {b}))", (printable(f"{a * b + a % b}\n"),))

    def _known(self) -> Piece:
        name, value = self._variable()
        return Piece(f'printf %s "${{{name}}}"', (printable(value),))

    def _called(self) -> Piece:
        if not self.functions:
            return self._nothing()
        return self.functions[self.rng.choice(sorted(self.functions))]

    def _where(self) -> Piece:
        return Piece("pwd", (printable(f"{self.cwd}\n"),))

    def _jobs(self) -> Piece:
        inner, status = material.payload(self.rng), self.rng.randrange(256)
        code = f"({{ printf '{octal(inner.data)}'; exit {status}; }} & wait $!; echo $?)"
        return Piece(code, (inner, printable(f"{status}\n")))

    def _array(self) -> Piece:
        values = [material.characters(self.rng) for _ in range(self._small())]
        listed = " ".join(map(quote, values))
        return Piece(f"q=({listed}); printf '<%s>' \"${{q[@]}}\"", (printable("".join(f"<{v}>" for v in values)),))

    def _dollar_quote(self) -> Piece:
        text = material.characters(self.rng)
        escaped = "".join(f"\\U{ord(c):08x}" for c in text)
        return Piece(f"printf %s $'{escaped}'", (printable(text),))

    def _here_string(self) -> Piece:
        text = material.characters(self.rng)
        return Piece(f"cat <<<{quote(text)}", (printable(text + "\n"),))

    def _variable(self) -> tuple[str, str]:
        if not self.variables:
            return "unset_one", ""
        name = self.rng.choice(sorted(self.variables))
        return name, self.variables[name]

    # What stands around other pieces.

    def _wraps(self) -> list[Callable[[Piece, int], Piece]]:
        common = [self._group, self._subshell, self._if, self._or, self._not, self._for, self._pipe, self._count]
        return [*common, self._caught, self._file, self._eval, self._child, self._case, self._merged]

    def _group(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"{{\n{a.code}\n}}", line=True)

    def _subshell(self, a: Piece, _depth: int) -> Piece:
        status = self.rng.randrange(256)
        return replace(a, code=f"(\n{a.code}\nexit {status}\n)", status=status, line=True)

    def _if(self, a: Piece, depth: int) -> Piece:
        b, c = self._piece(depth - 1), self._piece(depth - 1)
        taken = c if a.status else b
        code = f"if {a.code}\nthen {b.code}\nelse {c.code}\nfi"
        return Piece(code, a.out + taken.out, taken.status, True, a.tty or b.tty or c.tty)

    def _or(self, a: Piece, depth: int) -> Piece:
        b, both = self._piece(depth - 1), self.rng.random() < 0.5
        runs = both == (a.status == 0)
        code = f"{{ {a.code}\n}} {'&&' if both else '||'} {{ {b.code}\n}}"
        return Piece(code, a.out + b.out if runs else a.out, b.status if runs else a.status, True, a.tty or b.tty)

    def _not(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"! {{ {a.code}\n}}", status=int(a.status == 0), line=True)

    def _for(self, a: Piece, _depth: int) -> Piece:
        count = self.rng.randint(1, 3)
        items = " ".join(map(str, range(count)))
        return replace(a, code=f"for k in {items}; do {a.code}\ndone", out=a.out * count, line=True)

    def _pipe(self, a: Piece, _depth: int) -> Piece:
        if any(p.fd != 1 for p in a.out) or a.tty:
            return a
        return replace(a, code=f"{{ {a.code}\n}} | cat", status=0, line=True)

    def _count(self, a: Piece, _depth: int) -> Piece:
        if any(p.fd != 1 for p in a.out) or a.tty:
            return a
        return Piece(f"{{ {a.code}\n}} | wc -c | tr -d ' '", (printable(f"{len(a.data)}\n"),))

    def _caught(self, a: Piece, _depth: int) -> Piece:
        if not a.quiet or len(a.data) > 100_000 or b"\x1b" in a.data or b"\r" in a.data:
            return a
        data = a.data.rstrip(b"\n")
        text = material.joined(a.out)
        return Piece(f'printf "[%s]" "$(\n{a.code}\n)"', (Printed(b"[" + data + b"]", f"[{text.rstrip(chr(10))}]"),))

    def _file(self, a: Piece, depth: int) -> Piece:
        if a.tty:
            return a
        path = quote(f"{self.work}/out {depth}")
        first = tuple(p for p in a.out if p.fd == 2)
        code = f"{{ {a.code}\n}} >{path}; cat {path}"
        return Piece(code, first + tuple(p for p in a.out if p.fd == 1), 0)

    def _eval(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"eval {quote(a.code)}", line=True)

    def _child(self, a: Piece, _depth: int) -> Piece:
        if a.tty or "$" in a.code or "fun_" in a.code:
            return a
        shell = "bash" if self.bash else "dash"
        return replace(a, code=f"{shell} -c {quote(a.code)}", line=True)

    def _case(self, a: Piece, depth: int) -> Piece:
        b = self._piece(depth - 1)
        word = material.words(self.rng)
        return replace(a, code=f"case {quote(word)} in 'no') {b.code}\n;; *) {a.code}\n;; esac", line=True)

    def _merged(self, a: Piece, _depth: int) -> Piece:
        return replace(a, code=f"{{ {a.code}\n}} 2>&1", out=tuple(replace(p, fd=1) for p in a.out), line=True)

    # What later commands see; these stand only where they are sure to run.

    def _stateful(self) -> Piece:
        return self.rng.choice((self._assign, self._assign, self._define, self._cd, self._cd, self._background))()

    def _assign(self) -> Piece:
        name, value = f"var_{self.rng.randrange(8)}", material.characters(self.rng)
        self.variables[name] = value
        if self.rng.random() < 0.5:
            return Piece(f"{name}={quote(value)}")
        self.exported.add(name)
        return Piece(f"export {name}={quote(value)}")

    def _define(self) -> Piece:
        name, status = f"fun_{self.rng.randrange(6)}", self.rng.randrange(256)
        printed = material.payload(self.rng)
        body = f"printf '{octal(printed.data)}'"
        self.functions[name] = Piece(name, (printed,), status)
        return Piece(f"{name}() {{\n  {body}\n  return {status}\n}}")

    def _cd(self) -> Piece:
        if self.rng.random() < 0.15:
            self.cwd, self.last_directory = self.last_directory, self.cwd
            return Piece("cd - >/dev/null")
        if self.rng.random() < 0.1:
            return Piece("cd /no/such/place 2>/dev/null || (exit 3)", status=3)
        self.last_directory, self.cwd = self.cwd, self.rng.choice(self.directories)
        return Piece(f"cd {quote(self.cwd)}")

    def _background(self) -> Piece:
        if self.bash:
            return Piece("{ sleep 1000 & } 2>/dev/null; kill -KILL $!; { wait $!; } 2>/dev/null; (exit 5)", status=5)
        path = quote(f"{self.work}/pid")
        return Piece(f"(sleep 1000 >/dev/null 2>&1 & echo $! >{path}); kill -KILL $(cat {path})")

    # What concerns the command as a whole.

    def _stty(self) -> Piece:
        out = (replace(printable("a\nb\n"), onlcr=False),)
        return self.rng.choice(
            (
                Piece("stty -onlcr; printf 'a\\nb\\n'; stty onlcr", out),
                Piece("stty -opost; printf 'a\\nb\\n'; stty opost", out),
                Piece("stty raw; printf 'a\\nb\\n'; stty sane", out),
                Piece("stty olcuc; printf 'a\\n'; stty -olcuc", (printable("A\n"),)),
                Piece("stty -echo"),
                Piece("stty echo"),
                Piece("stty -icanon; echo a; stty icanon", (printable("a\n"),)),
                Piece("stty -isig -ixany; stty sane"),
            )
        )

    def _answered(self) -> Expected:
        line = material.characters(self.rng).replace("\n", "").replace("\t", "") + "."
        code = "stty echo; IFS= read -r x; printf '<%s>' \"$x\""
        self.status = 0
        raw = f"{line}\r\n<{line}>".encode()
        return Expected(code, raw, None, 0, self.cwd, answers=(line.encode() + b"\n",))

    def _ending(self) -> Expected:
        """What the next shell takes over is all that is known afterwards."""
        status = self.rng.randrange(256)
        self.variables = {name: value for name, value in self.variables.items() if name in self.exported}
        self.functions = self.functions if self.keeps_functions else {}
        self.last_directory = self.cwd
        return replace(self._done(Piece(f"exit {status}", status=status)), ends=True)

    def _whole(self) -> Expected:
        if self.past and self.rng.random() < 0.3:
            (self.work / "past").write_bytes(self.past)
            return self._done(Piece(f"cat {quote(f'{self.work}/past')}", (Printed(self.past, ""),)), text=None)
        if self.rng.random() < 0.3:
            shown, text = self.rng.choice(material.SCREENS)
            return self._done(Piece(f"printf '{octal(shown.encode())}'", (Printed(shown.encode(), text),)))
        data = self.rng.randbytes(self.rng.choice((10, 1000, 20_000))) + bytes(range(256))
        for query in (b"\x1b[", b"\x1bZ", b"\x1bP", b"\x1b]"):
            data = data.replace(query, b"\x1b7")
        (self.work / "random").write_bytes(data)
        return self._done(Piece(f"cat {quote(f'{self.work}/random')}", (Printed(data, ""),)), text=None)

    def _fed(self) -> Expected:
        data = self.rng.randbytes(self.rng.choice((0, 1, 5000)))
        lines = len(data.split(b"\n")) - 1
        piece = self.rng.choice(
            (
                Piece("cat | wc -c | tr -d ' '", (printable(f"{len(data)}\n"),)),
                Piece("cmp - " + quote(f"{self.work}/fed") + " && echo same", (printable("same\n"),)),
                Piece("wc -l | tr -d ' '; (exit 9)", (printable(f"{lines}\n"),), 9),
                Piece("head -c 3 >/dev/null; printf x", (printable("x"),)),
                Piece("printf e >&2; cat >/dev/null; printf o", (printable("o"),)),
            )
        )
        (self.work / "fed").write_bytes(data)
        if "e >&2" in piece.code:
            return self._done(piece, stdin=data, stderr=b"e")
        return self._done(piece, stdin=data)

"""A verb of ai_session that finds every signal ignored and blocked: the worst a starter can leave."""

from __future__ import annotations

import signal

from ai_session.__main__ import main

everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in everything:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, everything)
main()

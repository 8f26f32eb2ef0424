"""A process of the box's user with secrets in arguments, environment and memory, on a terminal of its own.

Prints where in its memory the secret lies, to the file named by its first argument. Standard library only.
"""

import ctypes
import fcntl
import signal
import sys
import termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
secret = bytearray(sys.stdin.buffer.readline().strip())
with open(sys.argv[1], "w") as file:
    file.write(str(ctypes.addressof(ctypes.c_char.from_buffer(secret))))
while True:
    signal.pause()

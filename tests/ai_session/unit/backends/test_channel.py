"""Messages and descriptors between two ends of a socket pair, in whatever pieces the kernel hands them over."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from ai_session.backends.pty.channel import HEADER, MAX_MESSAGE_BYTES, Channel, Message

Received = list[tuple[Message, list[int]]]


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    pair = tuple(Channel(sock) for sock in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    yield pair[0], pair[1]
    for channel in pair:
        channel.close()


def pass_on(sender: Channel, receiver: Channel) -> Received:
    """Everything that is queued, moved over."""
    received: Received = []
    done = False
    while not done:
        done = sender.flush()
        received += receiver.receive()
    more = receiver.receive()
    while more:
        received += more
        more = receiver.receive()
    return received


def open_here() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def descriptors(received: Received) -> list[int]:
    return [fd for _, fds in received for fd in fds]


def test_each_message_keeps_its_descriptors(ends: tuple[Channel, Channel]) -> None:
    files = [os.memfd_create(f"file {number}") for number in range(6)]
    for number, fd in enumerate(files):
        os.write(fd, b"%d" % number)
    for number in range(6):
        ends[0].send({"number": number}, files[:number])
        ends[0].send({"between": "x" * number * 50_000})
    received = pass_on(*ends)
    assert [message for message, _ in received[::2]] == [{"number": number} for number in range(6)]
    for (message, fds), (_, none) in zip(received[::2], received[1::2], strict=True):
        assert [os.pread(fd, 9, 0) for fd in fds] == [b"%d" % number for number in range(message["number"])]
        assert not none
        assert not any(os.get_inheritable(fd) for fd in fds)
    for fd in files + descriptors(received):
        os.close(fd)


def test_any_text_and_size_survives(ends: tuple[Channel, Channel]) -> None:
    messages = [{"text": "\udcff\ud800\0\n ü€"}, {"big": "y" * 3_000_000}, {}]
    for message in messages:
        ends[0].send(message)
    assert [message for message, _ in pass_on(*ends)] == messages


def test_what_was_sent_before_closing_is_received(ends: tuple[Channel, Channel]) -> None:
    for number in range(3):
        ends[0].send({"n": number})
    ends[0].close()
    assert ends[1].send({"too": "late"})
    assert [message["n"] for message, _ in ends[1].receive()] == [0, 1, 2]
    with pytest.raises(EOFError):
        ends[1].receive()


def test_descriptors_that_find_no_room_leave_the_rest_in_order(ends: tuple[Channel, Channel]) -> None:
    file = os.memfd_create("file")
    ends[0].send({"n": 1}, [file, file])
    ends[0].send({"n": 2}, [file])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = open_here()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(set(range(len(taken) + 1)) - taken) + 1, limits[1]))
    try:
        first = ends[1].receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    second = ends[1].receive()
    assert first == [({"n": 1}, [])]
    assert [(message, len(fds)) for message, fds in second] == [({"n": 2}, 1)]
    for fd in [file, *descriptors(second)]:
        os.close(fd)
    assert open_here() == taken - {file}


def test_descriptors_nobody_took_are_closed(ends: tuple[Channel, Channel]) -> None:
    before = len(open_here())
    sock, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    reader, writer = os.pipe()
    socket.send_fds(sock, [HEADER.pack(100, 1)], [reader])
    channel = Channel(peer)
    assert channel.receive() == []
    channel.close()
    sock.close()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert len(open_here()) == before


@pytest.mark.parametrize("data", [HEADER.pack(MAX_MESSAGE_BYTES + 1, 0), HEADER.pack(1, 0) + b"{"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    sock, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.send(data)
    channel = Channel(peer)
    with pytest.raises(ValueError, match=r"message|Expecting"):
        channel.receive()
    channel.close()
    sock.close()

"""Which names, ports and addresses pass; everything else does not."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.errors import ConfigInvalid
from ai_session.sandbox.network.rules import NetworkRules, Refused

RULES = NetworkRules(("pypi.org", "*.example.com", "XN--bcher-kva.example.", "10.1.2.3"), (80, 443))


def allowed(host: str, port: int = 443, rules: NetworkRules = RULES) -> bool:
    try:
        return rules.lists(rules.name(host, port))
    except Refused:
        return False


@pytest.mark.parametrize(
    "host",
    ["pypi.org", "PyPI.org", "pypi.org.", "a.example.com", "a.b.example.com", "xn--bcher-kva.example", "10.1.2.3"],
)
def test_listed_names_pass(host: str) -> None:
    assert allowed(host)
    assert allowed(host, 80)


@pytest.mark.parametrize(
    "host",
    [
        *("example.com", "evilexample.com", "example.com.evil.org", "pypi.org.evil.org", "files.pypi.org", "ipypi.org"),
        *("pypi.org\0.evil.org", "evil.org\0.example.com", "pypi.org%00", "a%2eexample.com", "pypi.org..", ".pypi.org"),
        *("user@pypi.org", "pypi.org@evil.org", "pypi.org:443", "pypi.org/", "pypi.org#", "pypi.org?", "pypi.org\\"),
        *(
            "pypi.org ",
            " pypi.org",
            "pypi.org\t",
            "pypi.org\n",
            "pypi.org\r\n",
            "pypi．org",
            "pypı.org",
            "*.example.com",
        ),
        *("\u212aypi.org", "a..example.com", "-.example.com", "a-.example.com", "_x.example.com", "ä.example.com"),
        *("", ".", "..", "localhost", "[::1]", "::1", "[::ffff:10.1.2.3]", f"{'a' * 64}.example.com"),
        *(f"{'a.' * 130}example.com", "127.0.0.1", "127.1", "0", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1"),
        *("1.0x", "a.1", "a.0x7f", "10.1.2.03", "010.1.2.3", "１.1"),
    ],
)
def test_other_names_do_not(host: str) -> None:
    assert not allowed(host)


@pytest.mark.parametrize("port", [0, -1, 22, 81, 8443, 65536, 443 + 65536])
def test_other_ports_do_not(port: int) -> None:
    assert not allowed("pypi.org", port)


def test_an_empty_list_is_nothing() -> None:
    nothing = NetworkRules(())
    assert not any(allowed(host, rules=nothing) for host in ("pypi.org", "a", "localhost"))


def test_a_numeric_name_under_a_listed_suffix_does_not_pass() -> None:
    assert not allowed("127.0.0.1.example.1", rules=NetworkRules(["*.1"]))


@given(st.text(max_size=40), st.sampled_from(["", ".example.com", "pypi.org"]))
def test_what_passes_is_a_plain_name_on_the_list(text: str, end: str) -> None:
    host = text + end
    if allowed(host):
        name = host.lower().removesuffix(".")
        assert name in ("pypi.org", "10.1.2.3", "xn--bcher-kva.example") or name.endswith(".example.com")
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@pytest.mark.parametrize(
    "domain", ["*", "*.", "", "http://pypi.org", "pypi.org:443", "*.*.org", "a.*.org", "bücher.de"]
)
def test_what_is_no_domain_is_said(domain: str) -> None:
    with pytest.raises(ConfigInvalid):
        NetworkRules([domain])


def test_what_is_no_port_or_network_is_said() -> None:
    with pytest.raises(ConfigInvalid):
        NetworkRules([], [0])
    with pytest.raises(ConfigInvalid):
        NetworkRules([], private=["10.0.0.0/33"])


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_reached(address: str) -> None:
    assert RULES.reachable(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
        ),
        *("169.254.169.254", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *(
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
        ),
        *("::ffff:127.0.0.1", "::ffff:1.1.1.1", "::ffff:169.254.169.254", "::127.0.0.1", "::1.1.1.1", "2002:7f00:1::"),
        *(
            "2002:101:101::",
            "2001:0:101:101::",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::101:101",
            "fec0::1",
        ),
    ],
)
def test_other_addresses_are_not(address: str) -> None:
    assert not RULES.reachable(address)


def test_private_addresses_are_reached_where_they_are_named() -> None:
    rules = NetworkRules([], private=["127.0.0.1", "10.1.0.0/16", "fd00::/64"])
    assert [rules.reachable(a) for a in ("127.0.0.1", "127.0.0.2", "10.1.9.9", "10.2.0.1", "fd00::9", "fd01::9")] == [
        *(True, False, True, False, True, False)
    ]


@given(st.ip_addresses(v=4))
def test_an_address_in_another_form_is_no_way_round(address: ipaddress.IPv4Address) -> None:
    if not RULES.reachable(str(address)):
        for prefix in ("::ffff:0:0", "::", "64:ff9b::"):
            assert not RULES.reachable(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(address))))
        assert not RULES.reachable(str(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80) | 1)))

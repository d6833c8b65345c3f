"""Certificates and keys: an authority of one's own, a server it vouches for, a key per client."""

from __future__ import annotations

import datetime
import inspect
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coterie.core import storage
from coterie.core.errors import AccessError
from coterie.core.reading import read_bytes, reason

LOCAL = ("localhost", "127.0.0.1", "::1")
Identity = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]
USAGES = tuple(inspect.signature(x509.KeyUsage).parameters)


def make(
    folder: Path, clients: Sequence[str], hosts: Sequence[str] = (), days: int = 825
) -> list[Path]:
    """Whatever is missing of an authority, a server and these clients; what is there stays.

    authority/          stays where it is; whoever has its key can pretend to be the server
    server/             for the server: its certificate and key, and the clients' public keys
    clients/NAME/       for that client: its key, and whom to trust
    """
    ca = authority(folder / "authority", days)
    made = server(folder / "server", ca, hosts, days)
    for name in clients:
        made += client(folder, name, ca[1])
    return made


def authority(folder: Path, days: int) -> Identity:
    """The authority in a folder; a new one if there is none."""
    key_file, file = folder / "ca.key", folder / "ca.pem"
    if key_file.exists() and file.exists():
        with loading(key_file):
            key = form.load_pem_private_key(read_bytes(key_file), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError("it is no key on an elliptic curve")
        with loading(file):
            return key, x509.load_pem_x509_certificate(read_bytes(file))
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    extensions = [(constraints, True), (usage("key_cert_sign", "crl_sign"), True)]
    return issued(folder / "ca", "coterie authority", days, extensions)


def server(folder: Path, ca: Identity, hosts: Sequence[str], days: int) -> list[Path]:
    """The server's key and certificate, for these names and for the machine itself."""
    storage.make_folder(folder / "clients")
    if (folder / "server.pem").exists() and not hosts:
        return []
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (usage("digital_signature"), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(alternatives(hosts)), False),
    ]
    issued(folder / "server", (*hosts, "localhost")[0][:64], days, extensions, by=ca)
    public(folder / "ca.pem", ca[1].public_bytes(form.Encoding.PEM))
    return [folder]


def client(folder: Path, name: str, ca: x509.Certificate) -> list[Path]:
    """A client's key, its public half among the server's, and the authority it shall trust."""
    home = folder / "clients" / name
    if (home / "client.key").exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    line = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    secret(home / "client.key", private)
    public(home / "ca.pem", ca.public_bytes(form.Encoding.PEM))
    public(home / "name", f"{name}\n".encode())
    public(folder / "server" / "clients" / f"{name}.pub", line + f" {name}\n".encode())
    return [home]


def listed(folder: Path) -> dict[str, bytes]:
    """The public keys of a server's folder: name -> key as Flower takes it (PEM)."""
    pem = form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    found = {}
    for file in sorted((folder / "clients").glob("*.pub")):
        with loading(file):
            found[file.stem] = form.load_ssh_public_key(read_bytes(file)).public_bytes(*pem)
    return found


@contextmanager
def loading(file: Path) -> Iterator[None]:
    """Inside it a key or certificate is read; one that is none becomes an error with its name."""
    try:
        yield
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as cause:
        raise AccessError(
            f"{file} cannot be used",
            code="A002",
            why=reason(cause),
            fix="remove it, or make it again with `coterie certs DIR --clients NAMES`",
        ) from cause


def issued(
    file: Path,
    name: str,
    days: int,
    extensions: Iterable[tuple[x509.ExtensionType, bool]],  # and whether each is critical
    by: Identity | None = None,
) -> Identity:
    """A new key and its certificate, in FILE.key and FILE.pem, signed by an authority or by itself.

    It is valid from yesterday, for clocks that are behind, until so many days from now.
    """
    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, issuer = (by[0], by[1].subject) if by else (key, subject)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension, critical in extensions:
        built = built.add_extension(extension, critical)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    built = built.add_extension(own, critical=False)
    if by:
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        built = built.add_extension(known, critical=False)
    certificate = built.sign(signer, hashes.SHA384())
    text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    secret(file.with_suffix(".key"), text)
    public(file.with_suffix(".pem"), certificate.public_bytes(form.Encoding.PEM))
    return key, certificate


def usage(*allowed: str) -> x509.KeyUsage:
    """What a key may be used for."""
    return x509.KeyUsage(**{name: name in allowed for name in USAGES})


def alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Names and addresses under which a server is reached."""
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys((*hosts, *LOCAL)):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def secret(path: Path, data: bytes) -> None:
    """A file that only its owner reads, from its first byte on."""
    storage.make_folder(path.parent)
    path.parent.chmod(0o700)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    storage.write_file(path, data)


def public(path: Path, data: bytes) -> None:
    """A file for everybody."""
    storage.make_folder(path.parent)
    storage.replace_file(path, data)

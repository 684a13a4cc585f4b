"""Keys of clients and agents: who may speak to whom, and whose artifacts an agent runs.

A user has one Ed25519 key and a certificate that it signed itself, and hands the certificate to the
other side by hand. Both sides of a connection show theirs (TLS 1.3), and know the other's byte by
byte: no authority vouches for anybody. The same key signs artifacts. The own certificate is always
trusted, so that a user's clients reach this user's agent.
"""

import hashlib
import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic_write import write_output
from ..errors import DeviceError, ToolError, UsageError, install_command
from ..file_access import private_folder, read_part, reason
from ..signing import key_path, read_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY, CERTIFICATE = "agent.key", "agent.pem"
"""Files of this user's key and certificate."""

CLIENTS, AGENTS = "clients", "agents"
"""Folders of the certificates of clients that may use this user's agents, and of agents."""

MAX_PEM_BYTES = 1 << 14
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Names of clients and agents, which are names of files and parts of addresses too."""

PURPOSE = b"tilewright artifact\0"
"""Before the digest in what is signed, so that a signature fits nothing else."""


@dataclass(frozen=True)
class Certificate:
    """A certificate, as PEM."""

    pem: str

    @cached_property
    def der(self) -> bytes:
        """The certificate as it is sent."""
        return ssl.PEM_cert_to_DER_cert(self.pem)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, hexadecimal."""
        return fingerprint_of(self.der)

    @property
    def owner(self) -> str:
        """The name that its owner chose; empty if it has none."""
        from cryptography.x509 import NameOID, load_der_x509_certificate

        subject = load_der_x509_certificate(self.der).subject
        found = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return next(filter(NAME.fullmatch, found), "")

    def has_signed(self, digest: str, signature: bytes) -> bool:
        """Whether its key signed the artifact with this SHA-256."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.x509 import load_der_x509_certificate

        key = load_der_x509_certificate(self.der).public_key()
        if not isinstance(key, Ed25519PublicKey):
            return False
        try:
            key.verify(signature, PURPOSE + digest.encode())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Identity:
    """This user's key and certificate; `folder` holds those of the others too."""

    folder: Path
    certificate: Certificate
    key: "Ed25519PrivateKey"

    def sign(self, digest: str) -> bytes:
        """Return the signature of an artifact with this SHA-256."""
        return self.key.sign(PURPOSE + digest.encode())

    def context(self, *, server: bool, trusted: Iterable[Certificate]) -> ssl.SSLContext:
        """Return the settings of encrypted connections with owners of some certificates alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a certificate is known as a whole, wherever its owner is
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.load_verify_locations(cadata="\n".join(one.pem for one in trusted))
        if server:
            context.num_tickets = 0  # each connection shows its certificate anew
        return context


def fingerprint_of(der: bytes) -> str:
    """Return the SHA-256 of a certificate, hexadecimal."""
    return hashlib.sha256(der).hexdigest()


def keys_folder() -> Path:
    """Return the folder of this user's keys; raises `UsageError` for a user without a home."""
    try:
        return key_path().parent / "keys"
    except RuntimeError as problem:
        raise UsageError(f"keys: {problem}; set `XDG_DATA_HOME`") from None


def new_identity(name: str) -> Identity:
    """Make this user's key and certificate.

    Raises
    ------
    UsageError
        If there are some already, the name cannot be one, or they cannot be written.
    ToolError
        If a package is missing.
    """
    check_name(name)
    folder = keys_folder()
    if (folder / KEY).exists() or (folder / CERTIFICATE).exists():
        raise UsageError(
            f"keys: `{folder}` has some already, which others may trust; remove `{KEY}` and "
            f"`{CERTIFICATE}` there to make new ones, and hand the new certificate to all of them"
        )
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A board without a clock lives in 1970. Trust ends with the removal of the certificate.
        .not_valid_before(datetime(1970, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        private_folder(folder)
        descriptor = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private)
    except OSError as problem:
        raise UsageError(f"keys: `{folder}` cannot be written ({problem.strerror})") from None
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    write_output(folder / CERTIFICATE, pem, f"`{folder / CERTIFICATE}`")
    return Identity(folder, Certificate(pem.decode()), key)


def load_identity() -> Identity:
    """Return this user's key and certificate.

    Raises
    ------
    UsageError
        If there are none, or others may read or change the key.
    ToolError
        If a package is missing.
    """
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = keys_folder()
    try:
        key = serialization.load_pem_private_key(
            read_private(folder / KEY, MAX_PEM_BYTES), password=None
        )
    except FileNotFoundError:
        raise UsageError(
            "keys: you have none yet; make them with `tilewright agent --new-keys`, here and on "
            "the other machine, and hand each side the other's certificate"
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(f"keys: `{folder / KEY}` cannot be used ({problem})") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"keys: `{folder / KEY}`: expected an Ed25519 key, got another one")
    return Identity(folder, read_certificate(folder / CERTIFICATE), key)


def read_certificate(path: Path) -> Certificate:
    """Read a certificate.

    Raises
    ------
    UsageError
        If the file is not one, or has more than one.
    """
    try:
        text = read_part(path, limit=MAX_PEM_BYTES).decode("ascii")
        begins = text.find("-----BEGIN CERTIFICATE-----")
        if begins < 0:
            raise ValueError("a file without one")
        certificate = Certificate(text[begins:].strip() + "\n")
        _check_certificate(certificate)
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"certificate `{path}`: expected one that `tilewright agent --new-keys` made, got "
            f"`{reason(problem):.100}`; correct the path"
        ) from None
    return certificate


def _check_certificate(certificate: Certificate) -> None:
    """Raise `ValueError` unless it is a single certificate of an Ed25519 key."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.x509 import load_der_x509_certificate

    key = load_der_x509_certificate(certificate.der).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("a key of another kind")


def certificates(folder: Path, kind: str) -> dict[str, Certificate]:
    """Return the certificates of `CLIENTS` or `AGENTS`, by name; unreadable ones are left out."""
    found = {}
    for path in sorted((folder / kind).glob("*.pem")):
        try:
            found[path.stem] = read_certificate(path)
        except UsageError:
            continue
    return found


def trust(folder: Path, kind: str, name: str, certificate: Certificate) -> Path:
    """Keep the certificate of a client or an agent, and return its path.

    Raises
    ------
    UsageError
        If the name cannot be one, or the file cannot be written.
    """
    check_name(name)
    try:
        private_folder(folder / kind)
    except OSError as problem:
        raise UsageError(f"keys: `{folder / kind}`: {problem.strerror}") from None
    path = folder / kind / f"{name}.pem"
    write_output(path, certificate.pem, f"`{path}`")
    return path


def check_name(name: str) -> None:
    """Raise `UsageError` unless a text can name a client or an agent."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"name `{name}`: expected letters, digits, `-`, `_` and `.`, at most 63; choose another"
        )


def _require_cryptography() -> None:
    try:
        import cryptography as cryptography
    except ImportError:
        raise ToolError(
            "agents: the package `cryptography` is not installed, which makes keys; "
            f"`{install_command('agent')}`"
        ) from None


def refusal(agent: str, problem: Exception) -> DeviceError:
    """Return the sentence for a connection that TLS refused."""
    text = " ".join(str(problem).split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return DeviceError(
            f"agent `{agent}`: it shows another key than the one you know; ask its owner for its "
            "certificate (`agent.pem`) and add it with `tilewright devices --add NAME=HOST:PORT "
            "--certificate FILE`"
        )
    return DeviceError(
        f"agent `{agent}`: it does not know your key, or has just ended ({text:.120}); hand your "
        f"certificate (`{keys_folder() / CERTIFICATE}`) to its owner, who runs "
        "`tilewright agent --allow FILE`"
    )

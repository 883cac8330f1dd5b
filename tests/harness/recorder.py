"""A server that is not ours."""

import datetime
import socket
import ssl

import certs
from certs import hashes, x509
from listener import Listener
from machine import scratch


class Recorder(Listener):
    """A server that is not ours, and keeps every byte that a client tells it; over TLS what was decrypted."""

    def __init__(self, tls: bool = True, not_after_days: int = 10):
        super().__init__()
        self.heard = b""
        self.context = None
        if tls:
            place = scratch("rec")
            key = certs.ec_key()
            now = datetime.datetime.now(datetime.UTC)
            name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "impostor")])
            import ipaddress

            builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            builder = builder.serial_number(5).not_valid_before(now - datetime.timedelta(days=30))
            builder = builder.not_valid_after(now + datetime.timedelta(days=not_after_days))
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            self.certificate = builder.add_extension(names, False).sign(key, hashes.SHA256())
            files = certs.identity(place, key, certs.pem(self.certificate).decode())
            self.ca_file = files[0]
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*files)
            self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.listen()

    def serve(self, client: socket.socket) -> None:
        try:
            client.settimeout(5)
            if self.context:
                client = self.context.wrap_socket(client, server_side=True)
            while data := client.recv(65536):
                self.heard += data
        except (OSError, ssl.SSLError):
            pass
        client.close()

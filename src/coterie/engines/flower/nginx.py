"""A reverse proxy that shows the outside the clients' interface and nothing else."""

from __future__ import annotations

from pathlib import Path

from coterie.engines.flower.guard import FLEET, LARGEST

TEMPLATE = """\
# Written by `coterie serve --proxy nginx`. Include it inside the http block of nginx.conf.
# Outside: {listen} with TLS, only {fleet}. Inside: the SuperLink on 127.0.0.1:{port}.
server {{
    listen {listen} ssl;
    ssl_certificate     {certs}/server.pem;
    ssl_certificate_key {certs}/server.key;
    ssl_protocols       TLSv1.2 TLSv1.3;
    server_tokens       off;

    location ^~ {fleet} {{
        proxy_pass https://127.0.0.1:{port};
        proxy_ssl_verify              on;
        proxy_ssl_name                localhost;
        proxy_ssl_trusted_certificate {certs}/ca.pem;
        proxy_http_version 1.1;
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $remote_addr;
        client_max_body_size {largest};   # bytes: Flower sends arrays in pieces
        proxy_read_timeout 120s;
    }}

    location / {{
        return 404;
    }}
}}
"""


def configuration(certs: Path, port: int, listen: str) -> str:
    """The text of a configuration for nginx."""
    return TEMPLATE.format(
        certs=certs.resolve(), port=port, listen=listen, fleet=FLEET, largest=LARGEST
    )

"""Asks a server whether it and its models are ready. Its APIs that change anything are closed, to us too."""

import http.client
from urllib.parse import quote

TIMEOUT_S = 5.0


class Readiness:
    """Speaks HTTP to one server."""

    def __init__(self, host: str, port: int) -> None:
        """Remember where the server is; no connection is kept."""
        self._host = host
        self._port = port

    def is_ready(self) -> bool:
        """Whether the server answers and every model is ready."""
        return self._says_yes("/v2/health/ready")

    def is_model_ready(self, model: str) -> bool:
        """Whether the server answers and takes requests for a model."""
        return self._says_yes(f"/v2/models/{quote(model, safe='')}/ready")

    def _says_yes(self, path: str) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return False
        else:
            return response.status == 200
        finally:
            connection.close()

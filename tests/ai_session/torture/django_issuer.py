"""``python -m tests.ai_session.torture.django_issuer FOLDER``: django-oauth-toolkit as an issuer of its own.

One person, carol; programs register themselves; the front asks about tokens as ``front``. The first line on standard
output is its URL. It ends with its standard input.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.urls import include, path

PASSWORD = "carol's own password"
SECRET = "front's own secret"
LOGIN = '<form method="post">{% csrf_token %}{{ form }}</form>'
SCOPES = {name: name for name in ("sessions:read", "sessions:write", "sessions:execute", "admin")}


class Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing on standard error."""


def configure(folder: Path, url: str) -> None:
    loaders = [
        ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN}),
        "django.template.loaders.app_directories.Loader",
    ]
    processors = ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth"]
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "django.sqlite")}},
        INSTALLED_APPS=[
            *("django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider"),
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {"loaders": loaders, "context_processors": processors},
            }
        ],
        LOGIN_URL="/accounts/login/",
        OAUTH2_PROVIDER={
            "SCOPES": SCOPES,
            "DCR_ENABLED": True,
            "DCR_REGISTRATION_PERMISSION_CLASSES": ("oauth2_provider.dcr.AllowAllDCRPermission",),
            "OIDC_ISS_ENDPOINT": url,
            "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
            "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
        },
    )
    django.setup()


def fill() -> None:
    from django.contrib.auth.models import User
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    User.objects.create_user("carol", password=PASSWORD)
    Application.objects.create(
        client_id="front",
        client_secret=SECRET,
        client_type="confidential",
        authorization_grant_type="client-credentials",
        name="front",
    )


urlpatterns: list[Any] = []


def routes() -> list[Any]:
    from django.contrib.auth.views import LoginView

    return [path("accounts/login/", LoginView.as_view()), path("", include("oauth2_provider.urls"))]


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    configure(Path(sys.argv[1]), url)
    fill()
    sys.modules[__name__].urlpatterns[:] = routes()
    with make_server("127.0.0.1", port, get_wsgi_application(), handler_class=Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(url, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    sys.modules["tests.ai_session.torture.django_issuer"] = sys.modules["__main__"]
    main()

"""The Django settings of the django-oauth-toolkit peer: only what it needs to run, the rest as it comes."""

import os

SECRET_KEY = "bench"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"]
ROOT_URLCONF = "oauth2_provider.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("BENCH_DATABASE")}}
OAUTH2_PROVIDER = {"SCOPES": {"api:read": "Read"}}

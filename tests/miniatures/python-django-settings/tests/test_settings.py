SECRET_KEY = "only for tests"
INSTALLED_APPS = ["shop"]

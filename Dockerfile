# The service and the watch of fiveshot, from a checkout. docs/how-to/container.md says how to use it.
# tools/container.py follows these steps without a container engine; a test runs it.
FROM python:3.11-slim

COPY pyproject.toml README.md LICENSE NOTICE.md /build/
COPY src /build/src
RUN python -m venv /opt/fiveshot \
    && /opt/fiveshot/bin/python -m pip install --no-cache-dir "/build[serve,watch]" \
    && rm -r /build
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin fiveshot \
    && install -d -o fiveshot -g fiveshot /models

ENV PATH=/opt/fiveshot/bin:$PATH HOME=/tmp FIVESHOT_CACHE=/tmp/fiveshot PYTHONDONTWRITEBYTECODE=1
USER fiveshot
WORKDIR /models
VOLUME /models
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8765/v1/ready', timeout=4)"]
CMD ["sh", "-c", "fiveshot new things --exist-ok && exec fiveshot serve things --host 0.0.0.0"]

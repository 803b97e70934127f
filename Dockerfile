# relaxd on a slim base. Build: docker build --build-arg TORCH_INDEX=<PyTorch's CPU wheel index> -t relaxd .
# Run: see docs/deploy.md (read-only root, /data and a tmpfs /tmp are all it writes to).
FROM python:3.11-slim

# The one system package: `ld` links the compiled libraries.
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/relaxd
# Without an index, pip may pick a CUDA build of torch of several gigabytes.
ARG TORCH_INDEX=
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service ./service
RUN pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} .

RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin relaxd && install -d -o relaxd /data
USER 10001
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
WORKDIR /data
CMD ["python", "-m", "service", "serve", "--host", "0.0.0.0", "--port", "8000", "--data", "/data"]

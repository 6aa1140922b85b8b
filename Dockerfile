# The course and JupyterLab in a container, for the CPU, or (with NVIDIA's base image) for an NVIDIA GPU.
#     docker build --tag nncourse .
#     docker build --tag nncourse --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 --build-arg CUDA=13 .
#     docker run --rm --publish 127.0.0.1:8888:8888 --volume nncourse:/home/student nncourse     # GPU: with --gpus all
# The volume keeps your files. .devcontainer/ uses the first stage alone. bubblewrap needs namespaces, which Docker does
# not allow by default: mark hand-ins outside a container, or add --security-opt seccomp=unconfined.
ARG BASE=debian:bookworm-20251229-slim

FROM ${BASE} AS machine
# Versions are not pinned: the course is used for years, with the versions that the system has then.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ git libseccomp2 make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /bin/bash --uid 1001 student

FROM machine
ARG CUDA=none
ENV PATH=/srv/course/.venv/bin:$PATH PIP_NO_CACHE_DIR=1 SHELL=/bin/bash
WORKDIR /srv/course
# The packages come first, so that their layer is built again only if requirements/ changes.
COPY requirements requirements
COPY tools/setup.py tools/
RUN CUDA=${CUDA} python3 tools/setup.py packages
COPY . .
RUN CUDA=${CUDA} python3 tools/setup.py shared
USER 1001
WORKDIR /home/student
EXPOSE 8888
CMD ["sh", "-c", "nncourse notebooks ~/my_notebooks && exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser --ContentsManager.hide_globs=MANIFEST.json"]

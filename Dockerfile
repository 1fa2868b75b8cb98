# plimsoll with a PyTorch of its own, for CI and clusters. It needs no GPU and no NVIDIA runtime.
#
#   make release && docker build -t plimsoll .
#   docker run --rm -v "$PWD":/work plimsoll predict --gpu rtx4090 -- python train.py
#
# Into an image that has your torch already, only the wheel: pip install plimsoll_gpu-*.whl
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# The wheels of PyPI are built for CUDA; nothing of it is started.
ARG TORCH=2.11.0
RUN pip install --no-cache-dir torch==${TORCH} numpy

COPY target/published/plimsoll_gpu-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/plimsoll_gpu-*.whl && rm /tmp/plimsoll_gpu-*.whl

# Nobody's account: the script needs no rights, and plimsoll keeps its writes apart by itself.
RUN useradd --create-home plimsoll
USER plimsoll
WORKDIR /work
RUN plimsoll doctor
ENTRYPOINT ["plimsoll"]
CMD ["--help"]

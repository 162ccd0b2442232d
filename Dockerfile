# An image with the command xlingjax, for CPUs; with --build-arg EXTRAS=t5-needs,cuda for NVIDIA GPUs (the driver and its container toolkit are
# the host's; CUDA's libraries come with JAX).
#   docker build -t xlingjax . && docker run -v "$PWD:/work" xlingjax start train.en train.sw
FROM python:3.12-slim
ARG EXTRAS=t5-needs
COPY . /xlingjax
# As `make setup`: t5 without its dependencies, see there.
RUN pip install --no-cache-dir -c /xlingjax/constraints.txt "/xlingjax[$EXTRAS]" && pip install --no-cache-dir --no-deps t5==0.9.4
WORKDIR /work
ENTRYPOINT ["xlingjax"]

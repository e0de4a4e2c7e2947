# The README's steps in a container, on CPUs: docker build -t tandem . && docker run --rm tandem demo --workers 2
# For GPUs, begin with an image of Debian 12 that has the CUDA 13 toolkit, and run with --gpus all. For several machines,
# run with --network host and see docs/cluster.md.
# Not tried by the project's tests, which have no container engine: its commands are those of `make build`, which are.
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

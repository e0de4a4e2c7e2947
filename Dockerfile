# The README's steps in a container, on CPUs: docker build -t tandem . && docker run --rm tandem demo --workers 2
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" tandem train CONFIG data=... run=...
# For GPUs, add --build-arg BASE=IMAGE of Debian 12 with the CUDA 13 toolkit, and run with --gpus all. For several
# machines, run with --network host and see docs/cluster.md.
# A tag may be moved to other content. To pin that too, pull the image once, and write what `docker inspect --format
# '{{index .RepoDigests 0}}' IMAGE` prints (IMAGE@sha256:...) in place of the tag, here and in the second FROM.
ARG BASE=debian:12.12-slim

# The toolchain and the bundle: the program with every library that it needs.
FROM ${BASE} AS build
WORKDIR /tandem
COPY tools/install-packages tools/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make \
    && tools/install-packages bundle && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make bundle && tar -C /opt -xzf build/tandem.tar.gz

# What runs: the bundle, ssh for `tandem launch`, and a user who may write in /work alone.
FROM debian:12.12-slim AS tandem
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home tandem && install -d -o tandem -g tandem /work \
    && ln -s /opt/tandem/tandem /usr/local/bin/tandem
COPY --from=build /opt/tandem /opt/tandem
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["tandem"]
CMD ["--help"]

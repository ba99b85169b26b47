# The image of launcher, workers and ranks, without GPUs. From the repository's root:
#   docker build -f k8s/images/cpu.Dockerfile -t gyre:cpu .
FROM debian:12 AS build
COPY . /src
WORKDIR /src
# UCX, so that Gyre's module for RDMA is built too.
RUN scripts/setup --build && apt-get install -y --no-install-recommends libucx-dev
RUN cmake --preset release -DGYRE_BUILD_TESTS=OFF -DGYRE_BUILD_BENCH=OFF -DCMAKE_INSTALL_PREFIX=/usr/local \
 && ninja -C build/release \
 && DESTDIR=/out cmake --install build/release \
 && install build/release/bin/char_lm build/release/bin/hello_allreduce /out/usr/local/bin

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends openssh-client openssh-server libabsl20220623 libssl3 libspdlog1.10 \
      libhwy1 libxxhash0 libopenblas0-serial libyaml-cpp0.7 libhwloc15 libucx0 \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
COPY --from=build /out/usr/local /usr/local
COPY k8s/images/ssh_config /etc/ssh/ssh_config.d/gyre.conf
COPY k8s/images/sshd_config /home/mpiuser/.sshd_config
RUN ldconfig \
 && groupadd --gid 1000 mpiuser \
 && useradd --uid 1000 --gid 1000 --no-create-home --shell /bin/sh mpiuser \
 && mkdir -p /home/mpiuser/.ssh /run/sshd \
 && chown mpiuser:mpiuser /home/mpiuser /home/mpiuser/.ssh \
 && chmod 700 /home/mpiuser/.ssh
USER mpiuser
WORKDIR /home/mpiuser

# The same on NVIDIA's CUDA image, for programs that use GPUs. From the repository's root:
#   docker build -f k8s/images/cuda.Dockerfile -t gyre:cuda .
ARG CUDA=12.6.3
FROM nvidia/cuda:${CUDA}-cudnn-devel-ubuntu24.04 AS build
COPY . /src
WORKDIR /src
# UCX, so that Gyre's module for RDMA is built too.
RUN scripts/setup --build && apt-get install -y --no-install-recommends libucx-dev
RUN cmake --preset release -DGYRE_BUILD_TESTS=OFF -DGYRE_BUILD_BENCH=OFF -DCMAKE_INSTALL_PREFIX=/usr/local \
 && ninja -C build/release \
 && DESTDIR=/out cmake --install build/release \
 && install build/release/bin/char_lm build/release/bin/hello_allreduce /out/usr/local/bin

FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu24.04
RUN apt-get update \
 && apt-get install -y --no-install-recommends openssh-client openssh-server libabsl20220623t64 libssl3t64 \
      libspdlog1.12 libhwy1t64 libxxhash0 libopenblas0-serial libyaml-cpp0.8 libhwloc15 libucx0 \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
COPY --from=build /out/usr/local /usr/local
COPY k8s/images/ssh_config /etc/ssh/ssh_config.d/gyre.conf
COPY k8s/images/sshd_config /home/mpiuser/.sshd_config
# Ubuntu's images have a user 1000 of their own. What ssh starts does not see the image's environment: ldconfig has the
# libraries found without it.
RUN userdel --remove ubuntu \
 && ldconfig \
 && groupadd --gid 1000 mpiuser \
 && useradd --uid 1000 --gid 1000 --no-create-home --shell /bin/sh mpiuser \
 && mkdir -p /home/mpiuser/.ssh /run/sshd \
 && chown mpiuser:mpiuser /home/mpiuser /home/mpiuser/.ssh \
 && chmod 700 /home/mpiuser/.ssh
USER mpiuser
WORKDIR /home/mpiuser

# shellcheck shell=bash
# What a build for GPUs stands on: the packages in a folder, and CUDA with what belongs to it. Sourced after common.sh,
# never run.

packages=(
  libabsl-dev libssl-dev libhwy-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libxxhash-dev
  libyaml-cpp-dev libhwloc-dev libgtest-dev libgmock-dev googletest
  ninja-build pkgconf pkgconf-bin
)

# pack_dependencies FOLDER: the packages and the libraries that theirs depend on, but for the C and C++ libraries, which
# come with a compiler.
pack_dependencies() {
  local folder=${1:?} work file
  local -a needed
  [ -z "$(ls -A "$folder" 2>/dev/null)" ] || die "$folder is not empty"
  mapfile -t needed < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "${packages[@]}" | grep -E '^(lib[a-z0-9+.-]*[0-9][a-z0-9.]*)$' |
    grep -Ev '^lib(c6|c-.*|gcc.*|stdc.*|crypt.*|asan.*|idn.*|unistring.*|gcrypt.*|gpg.*|cap.*|selinux.*|pcre.*|lzma.*|lz4.*|zstd.*|systemd.*|perl.*|python.*)$' | sort -u)
  work=$(mktemp -d)
  chmod 755 "$work"
  (cd "$work" && run_quietly "$work/log" apt-get download "${packages[@]}" "${needed[@]}")
  mkdir -p "$folder"
  for file in "$work"/*.deb; do dpkg-deb -x "$file" "$folder"; done
  rm -rf "$work" "$folder"/usr/share/{doc,man,lintian,bug,doc-base,info,locale} "$folder"/usr/{src,games,sbin} "${folder:?}/etc"
  find "$folder" -name '*.a' | while read -r file; do keep_archive "$file" || rm "$file"; done
  find "$folder" \( -name '*.so.*' -o -path '*/bin/*' \) -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
  # Headers that the distribution's compilers look for in a folder of the architecture's.
  local arch_headers
  arch_headers=$(echo "$folder"/usr/include/*-linux-gnu)
  if [ -d "$arch_headers" ]; then cp -r "$arch_headers"/. "$folder/usr/include/"; rm -r "$arch_headers"; fi
  note "$(tar -cC "$folder" . | gzip -9 | wc -c | awk '{ printf "%.1f MiB compressed", $1 / 1048576 }'), $(du -sm "$folder" | cut -f1) MiB unpacked, in $folder"
}
# Where there is a shared library of that name, that is what is linked. GoogleTest has none.
keep_archive() { ! [ -e "${1%.a}.so" ]; }

# has_library NAME: whether a linker finds it beside CUDA or the system's; what pip installs has only numbered names.
has_library() {
  local folder
  for folder in "$cuda"/lib* "$cuda"/targets/*/lib /usr/lib* /usr/lib/*-linux-gnu; do
    [ ! -e "$folder/lib$1.so" ] || return 0
  done
  return 1
}

# find_cuda FOLDER: where CUDA is, and what pip installs in place of a whole toolkit: links to what is missing, in FOLDER.
find_cuda() {
  local shim=${1:?} nvcc site part header file library name
  nvcc=$(command -v nvcc || ls -d /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  [ -n "$nvcc" ] || die "nvcc was not found, neither in PATH nor in /usr/local/cuda/bin"
  cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  export PATH=$cuda/bin:$PATH
  rm -rf "$shim"
  mkdir -p "$shim/include" "$shim/lib"
  site=$(python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null || true)
  for part in nccl:nccl.h cudnn:cudnn.h cublas:cublas_v2.h; do
    header=${part#*:}
    if [ -e "$cuda/include/$header" ] || [ -e "/usr/include/$header" ]; then
      ! has_library "${part%:*}" || continue
    fi
    file=$(find -L ${site:+$site} "$cuda/include" -path "*/include/$header" 2>/dev/null | head -n 1 || true)
    [ -n "$file" ] || continue
    ln -sf "$(dirname "$file")"/* "$shim/include/"
    for library in "$(dirname "$(dirname "$file")")"/lib/lib*.so*; do
      name=$(basename "$library")
      ln -sf "$library" "$shim/lib/$name"
      ln -sf "$library" "$shim/lib/${name%%.so*}.so"
    done
  done
  export LD_LIBRARY_PATH=$shim/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# use_dependencies FOLDER: has a build find the packages there.
use_dependencies() {
  local deps=$1 libraries name
  [ -d "$deps/usr" ] || die "$deps has no packages: make it with scripts/test-gpu --pack"
  libraries=$(echo "$deps"/usr/lib/*-linux-gnu)
  name=$(basename "$libraries")
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$libraries:$deps/lib/$name
  export PATH=$PATH:$deps/usr/bin
  export PKG_CONFIG_SYSROOT_DIR=$deps PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$deps/usr/share/pkgconfig
  export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
}

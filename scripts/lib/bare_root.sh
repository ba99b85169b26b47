# shellcheck shell=bash
# A bare system of this machine's release, in a folder. scripts/prove-clean and tests/packaging/deb_test source it.

# bare_root_obstacle: prints why this machine cannot make one; prints nothing where it can.
bare_root_obstacle() {
  [ "$(id -u)" -eq 0 ] || { echo "must be root (debootstrap, mounts, chroot)"; return; }
  command -v debootstrap >/dev/null || { echo "needs debootstrap: apt-get install debootstrap"; return; }
  unshare --mount --pid --fork true 2>/dev/null || { echo "may not make mount and process namespaces here"; return; }
  find_bare_root_mirror
  [ -n "$BARE_MIRROR" ] || echo "found no mirror of $BARE_RELEASE in apt's sources"
}

# Sets BARE_RELEASE, BARE_MIRROR (empty: not found) and BARE_COMPONENTS from this machine's apt sources.
find_bare_root_mirror() {
  # shellcheck disable=SC1091
  BARE_RELEASE=$(source /etc/os-release && echo "$VERSION_CODENAME")
  BARE_MIRROR=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk -v release="$BARE_RELEASE" '$1 == release && $2 == "main" { sub("/$", "", $3); print $3; exit }')
  BARE_COMPONENTS=main
  if grep -qx 'ID=ubuntu' /etc/os-release; then BARE_COMPONENTS=main,universe; fi
}

# make_bare_root SYSTEM: makes it in the folder SYSTEM, with network and nothing but the base packages.
make_bare_root() {
  local system=$1
  find_bare_root_mirror
  debootstrap --variant=minbase --components="$BARE_COMPONENTS" "$BARE_RELEASE" "$system" "$BARE_MIRROR" || return
  # What an installer or a container runtime adds to the bare packages.
  cp /etc/resolv.conf "$system/etc/resolv.conf"
  echo "127.0.0.1 localhost" >"$system/etc/hosts"
}

# in_bare_root SYSTEM FOLDER COMMAND...: runs COMMAND in the system's FOLDER. Returns its exit code.
# A mount and a process namespace of its own: whatever the command leaves goes with it.
in_bare_root() {
  unshare --mount --pid --fork --kill-child bash -ec '
    system=$1; shift
    mount --bind "$system" "$system"  # a root that is a mount, as everywhere but in a plain chroot
    mount --rbind /dev "$system/dev"
    mount -t tmpfs tmpfs "$system/dev/shm"
    mount -t proc proc "$system/proc"
    mount -t sysfs -o ro sysfs "$system/sys"
    exec chroot "$system" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      sh -c "cd \"\$0\" && exec \"\$@\"" "$@"
  ' bash "$@" </dev/null
}

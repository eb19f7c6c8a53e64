#!/bin/sh
# First process of a test's host, in new namespaces for network, processes, mounts and host name. Its file system is an
# overlay over this machine's, in memory, and is removed with it.
#
#   host.sh NAME FOLDER SSH-SETTINGS SSHD
set -eu
mount --make-rprivate /
mount -t tmpfs -o size=64g tmpfs "$2" # a limit, not a reservation; JetStream requires free space for its streams
mkdir "$2/upper" "$2/work" "$2/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/all"
mount -t proc proc "$2/all/proc"
mount --rbind /dev "$2/all/dev"
mount -t tmpfs tmpfs "$2/all/run"
mount -t tmpfs tmpfs "$2/all/tmp"
mkdir "$2/all/run/sshd" "$2/all/run/test"
cp "$3"/* "$2/all/run/test/"
chmod 0600 "$2/all/run/test"/*
sed -i 's/^root:!/root:*/' "$2/all/etc/shadow" # SSH rejects keys of a locked account
sed -i '/^root:/s,[^:]*$,/bin/sh,' "$2/all/etc/passwd" # sh does not read the bash start-up files of this machine's user
hostname "$1"
exec chroot "$2/all" "$4" -D -e -f /run/test/sshd_config

#!/bin/sh
# The first process of a host that a test made: in a network, process, mount and host name namespace of its own, with a file system of its own
# above this machine's, in memory. What it changes is gone with it.   host.sh NAME FOLDER SSH-SETTINGS SSHD
set -eu
mount --make-rprivate /
mount -t tmpfs -o size=64g tmpfs "$2" # a limit and no reservation; JetStream wants to see room for its streams
mkdir "$2/upper" "$2/work" "$2/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/all"
mount -t proc proc "$2/all/proc"
mount --rbind /dev "$2/all/dev"
mount -t tmpfs tmpfs "$2/all/run"
mount -t tmpfs tmpfs "$2/all/tmp"
mkdir "$2/all/run/sshd" "$2/all/run/test"
cp "$3"/* "$2/all/run/test/"
chmod 0600 "$2/all/run/test"/*
sed -i 's/^root:!/root:*/' "$2/all/etc/shadow" # a locked account gets in by no key
sed -i '/^root:/s,[^:]*$,/bin/sh,' "$2/all/etc/passwd" # which reads none of what this machine's user has bash do first
hostname "$1"
exec chroot "$2/all" "$4" -D -e -f /run/test/sshd_config

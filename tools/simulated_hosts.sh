#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command under mpirun, or as torchrun would, on simulated machines. They
# are network namespaces of this machine, each with its own name and address and
# without memory that MPI knows to be shared. Needs root; leaves nothing behind.
set -euo pipefail

usage() {
  cat <<TEXT
usage: tools/simulated_hosts.sh [--tcp] HOSTS SLOTS COMMAND...

Runs SLOTS processes of COMMAND on each of HOSTS (2 to 9) simulated machines:

    tools/simulated_hosts.sh 2 2 bazel-bin/programs/train --mesh dp=2,tp=2

under mpirun or, with --tcp, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
in the environment. Needs root, ip (iproute2), unshare and Open MPI.
TEXT
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
launcher=mpirun
if [[ ${1:-} == --tcp ]]; then
  launcher=bash
  shift
fi
if (($# < 3)) || [[ ! $1 =~ ^[2-9]$ || ! $2 =~ ^[1-9][0-9]*$ ]]; then
  usage >&2
  exit 2
fi
hosts=$1 slots=$2
shift 2
for needed in ip unshare "$launcher"; do
  command -v "$needed" >/dev/null ||
    { echo "simulated_hosts.sh: $needed is missing; install it" >&2; exit 1; }
done

bridge=dtensor$$
bridge=${bridge:0:15}
work=$(mktemp -d /tmp/hosts.XXXXXX)
clean() {
  for ((i = 1; i <= hosts; ++i)); do
    ip netns del "dt$$-$i" 2>/dev/null || true
  done
  ip link del "$bridge" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

net=10.231.$((RANDOM % 250))
ip link add "$bridge" type bridge
ip addr add "$net.254/24" dev "$bridge"
ip link set "$bridge" up
list=
for ((i = 1; i <= hosts; ++i)); do
  name=dt$$-$i
  ip netns add "$name"
  ip link add "v$$.$i" type veth peer name eth0 netns "$name"
  ip link set "v$$.$i" master "$bridge" up
  ip -n "$name" addr add "$net.$i/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  list+=${list:+,}$net.$i:$slots
done

if [[ $launcher != mpirun ]]; then
  export WORLD_SIZE=$((hosts * slots)) MASTER_ADDR=$net.1 MASTER_PORT=29500
  pids=()
  for ((rank = 0; rank < WORLD_SIZE; ++rank)); do
    RANK=$rank LOCAL_RANK=$((rank % slots)) \
      ip netns exec "dt$$-$((rank / slots + 1))" "$@" &
    pids+=($!)
  done
  status=0
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  exit "$status"
fi

# mpirun calls this instead of ssh: agent ADDRESS COMMAND...
cat >"$work/agent" <<TEXT
#!/bin/bash
i=\${1##*.}
shift
exec ip netns exec dt$$-\$i unshare --uts \
  bash -c "hostname dtensor-host-\$i; export TMPDIR=$work/\$i; mkdir -p \\\$TMPDIR; \$*"
TEXT
chmod +x "$work/agent"

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work \
  mpirun -q --oversubscribe --bind-to none --host "$list" \
  --mca plm_rsh_agent "$work/agent" --mca orte_keep_fqdn_hostnames 1 \
  --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" \
  --mca oob_tcp_if_include "$net.0/24" -n $((hosts * slots)) "$@"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts a command as so many processes, with what torchrun says to each in its
# environment:
#
#   tests/tcprun.sh PROCESSES COMMAND...
#
# MASTER_PORT, where it is not set, is one at which nobody listens. With
# TCPRUN_BARE=1 there is neither that nor MASTER_ADDR. The exit status is that of
# the first process that fails; with TCPRUN_CODES=FILE all are in FILE. SIGINT
# and SIGTERM are handed on.
set -u
processes=$1
shift
if [[ -z ${TCPRUN_BARE-} ]]; then
  export MASTER_ADDR=${MASTER_ADDR-127.0.0.1}
  # Below those that the system gives to who asks for any.
  until [[ ${MASTER_PORT-} ]]; do
    port=$((12000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || MASTER_PORT=$port
  done
  export MASTER_PORT
fi
export WORLD_SIZE=$processes LOCAL_WORLD_SIZE=$processes
pids=()
hand_on() { kill -"$1" "${pids[@]}" 2>/dev/null; }
trap 'hand_on INT' INT
trap 'hand_on TERM' TERM
for ((rank = 0; rank < processes; ++rank)); do
  # (What runs in the background ignores SIGINT, unless it is told not to.)
  RANK=$rank LOCAL_RANK=$rank env --default-signal=INT "$@" &
  pids+=($!)
done
code=0
codes=()
for pid in "${pids[@]}"; do
  # (A signal that is handed on interrupts the waiting.)
  while wait "$pid"; one=$?; kill -0 "$pid" 2>/dev/null; do :; done
  codes+=("$one")
  ((code)) || code=$one
done
[[ -z ${TCPRUN_CODES-} ]] || echo "${codes[*]}" >"$TCPRUN_CODES"
exit "$code"

#!/usr/bin/env bash
# A Slurm of one node on loopback, for as long as standard input stays open.
#
#   start_slurm.sh FOLDER CONTROL_PORT NODE_PORT
#
# Keys, configuration, state and logs are in FOLDER. Prints "ready" when jobs can be submitted with
# SLURM_CONF=FOLDER/slurm.conf. Needs root, and Debian's packages slurm-wlm and munge.
set -euo pipefail

folder=$1 control_port=$2 node_port=$3
host=$(hostname)
export SLURM_CONF=$folder/slurm.conf
mkdir -p "$folder"/{state,spool,munge}
chmod 700 "$folder/munge"

head -c 128 /dev/urandom > "$folder/munge/key"
chmod 400 "$folder/munge/key"

# cred_expire: how long a requeued job waits before it may start again; 120 seconds by default.
# urgent: jobs in this partition preempt those in the other, which get GraceTime seconds to end.
# MessageTimeout: how long a command waits for an answer; on a busy machine the default of 10 seconds may be too short.
# MaxArraySize: small enough that a sweep of six needs two arrays.
# config_overrides: two small jobs at a time on any number of cores.
cat > "$SLURM_CONF" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control_port
SlurmdPort=$node_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
MessageTimeout=30
MaxArraySize=5
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
NodeName=loopback NodeHostname=$host NodeAddr=127.0.0.1 Port=$node_port CPUs=2 RealMemory=4000 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=tests Nodes=loopback Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=100
PartitionName=urgent Nodes=loopback MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
CONF

started=()
stop() {
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        kill "${started[i]}" 2> /dev/null || true
    done
    wait
}
trap stop EXIT
trap 'exit 0' TERM INT HUP

munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" \
    < /dev/null > "$folder/munged.out" 2>&1 &
started+=($!)
for ((i = 0; i < 300; i++)); do
    [[ -S $folder/munge/socket ]] && break
    sleep 0.1
done

slurmctld -D -i < /dev/null > "$folder/slurmctld.out" 2>&1 &
started+=($!)
slurmd -D -N loopback < /dev/null > "$folder/slurmd.out" 2>&1 &
started+=($!)

for ((i = 0; i < 300; i++)); do
    for pid in "${started[@]}"; do
        kill -0 "$pid" 2> /dev/null || { tail -n 20 "$folder"/*.out "$folder"/*.log >&2; exit 1; }
    done
    if [[ $(sinfo --noheader --format=%t 2> /dev/null) == idle ]]; then
        echo ready
        # Until the parent closes standard input or dies; in the background, as bash handles signals only between commands.
        cat <&0 > /dev/null &
        started+=($!)
        wait "$!"
        exit 0
    fi
    sleep 0.1
done
tail -n 20 "$folder"/*.out "$folder"/*.log >&2
exit 1

#!/usr/bin/env bash
# Everything that only a GPU can show, in one command of under ten minutes on a bare machine with torch: checks first,
# then measurements. Nothing is installed and nothing is fetched.
#
#   benchmarks/gpu.sh [RESULTS]                    RESULTS is ./gpu-results unless it is named
#   WHEELS=DIR benchmarks/gpu.sh                   packages that the machine lacks, as wheels
#   DEVICE=cpu SMALL=1 benchmarks/gpu.sh           a rehearsal: says so in its results, from which no page is written
#   PARTS="facts data epoch" benchmarks/gpu.sh     these parts alone
#   PYTHON=python3.12 SECONDS_IN_ALL=570           which Python; how long all of it may take
#   COMMIT=$(git rev-parse HEAD)                   where the machine has the files and not their history
#
# RESULTS then has summary.tsv (what ran, its seconds, how it ended) and gpu-results.tar.gz (tables, sweep folders
# without checkpoints, what each part said). Both are written anew after each part: whatever ends the command, the parts
# before it are there. The archives of several commands are unpacked over one another, the oldest first; of a part the
# last one counts. `python -m benchmarks.gpu_page FOLDER` makes docs/results/gpu.md of what was unpacked.
#
# The plan: the most seconds of each part, and what is expected on an H200 with 16 cores. The CNN's epoch is 73 GFLOP:
# some 30 to 60 ms with a launch for each operation, a second on 16 cores; a tutorial's epoch 3 s, in its loader. A
# process that trains on a GPU takes 2 to 3 s to begin, and a sweep's command 5.
#
#   facts       70   20   versions, device, driver, what `doctor` says; torch and CUDA start for the first time
#   data        30    5   60,000 and 10,000 images in MNIST's format, 55 MB
#   ceilings    45   15   2 s the GPU, 2 s the CPU with all its threads, and the matrices beforehand
#   checks     150   75   tests/gpu: what times anything alone, then the rest at once where pytest-xdist is there
#   epoch      110   60   8 runs of 20 epochs of 10 to 60 ms, and one that compiles for 15 to 60 s
#   devices    120   80   cuda_vs_cpu: 6 runs x 7 epochs x 1.2 s on the CPU, 6 x 4 s on the GPU
#   tutorial   100   65   2 batch sizes, 6 rounds of 3.5 s of the tutorial's epoch and the ceiling, 12 s to begin each
#   crossover  110   70   7 + 14 runs x 2 s; 12 epochs of the largest, 1 TFLOP and 10 updates of 0.7 GB each, 1.5 s on CPU
#   profile     60   25   torch.profiler over an epoch, eager and captured
#   tracking   110   75   4 rows of 6 rounds of two turns of 1,000 steps (0.7 s), each a run; 15 s beside
#   regions     60   35   8 runs of 12 epochs at batch sizes 100 to 60,000
#   resnet18    90   60   12 runs of 7 epochs of 4.5 TFLOP (0.2 to 0.5 s)
#
# Together 585 s expected: runs of the last part may be missing. What does not fit into the time that is left is cut off,
# and its tables are of what it reached. Where more time is to be had, PARTS in two commands.
set -u

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RESULTS=$(mkdir -p "${1:-gpu-results}" && cd "${1:-gpu-results}" && pwd) || exit 2
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-} COMMIT=${COMMIT:-} SECONDS_IN_ALL=${SECONDS_IN_ALL:-570}
ALL_PARTS="facts data ceilings checks epoch devices tutorial crossover profile tracking regions resnet18"
PARTS=${PARTS:-$ALL_PARTS}
for name in $PARTS; do
    [[ " $ALL_PARTS " == *" $name "* ]] || { echo "error: PARTS must be of $ALL_PARTS, got $name." >&2; exit 2; }
done
if [[ $DEVICE != cuda && -z $SMALL ]]; then
    echo "error: DEVICE must be cuda, or a rehearsal with SMALL=1, got $DEVICE." >&2
    exit 2
fi

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
KEPT=$WORK/gpu-results
mkdir -p "$KEPT"/{said,summaries,sweeps,tables} "$WORK/outputs"
SUMMARY=$KEPT/summaries/$(date +%s).tsv
printf 'part\tseconds\tended\n' >"$SUMMARY"
echo "device: $DEVICE" >"$KEPT/device.txt"
if [[ -n $SMALL ]]; then
    echo "This was a rehearsal on $DEVICE with little work: none of its figures is a GPU's." >"$KEPT/REHEARSAL"
fi

export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 MPLBACKEND=Agg
export XDG_CACHE_HOME=$WORK/cache RUNMANAGER_DATA=$WORK/data
if [[ -n ${WHEELS:-} ]]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-cache-dir --target "$WORK/site" "$WHEELS"/*.whl ||
        { echo "error: the wheels in $WHEELS could not be unpacked." >&2; exit 2; }
    export PYTHONPATH=$REPO:$WORK/site${PYTHONPATH#"$REPO"}
fi
cd "$REPO" || exit 2

runmanager() { "$PYTHON" -c 'import sys; from runmanager.cli.main import main; sys.exit(main())' "$@"; }

# sweep NAME WORDS…: the grid, added to the sweep of that name.
sweep() {
    local name=$1
    shift
    [[ -z $IS_OVER ]] || return 0
    "$PYTHON" -m runmanager -m "$@" "name=$name" "output_root=$WORK/outputs" resume=auto --quiet --yes
}

# tables SWEEP [WORDS of `compare`]…: each comparison asked for, and the work of each run, as Markdown.
tables() {
    local name=$1 at=0 words
    shift
    runmanager table "$WORK/outputs/$name" --work --format markdown >"$KEPT/tables/$name-work.md"
    for words in "$@"; do
        at=$((at + 1))
        # shellcheck disable=SC2086
        runmanager compare "$WORK/outputs/$name" $words --format markdown >"$KEPT/tables/$name-$at.md"
    done
}

# keep: the sweeps as they are now, and the archive anew.
keep() {
    local folder name
    for folder in "$WORK"/outputs/*/; do
        [[ -f $folder/sweep.json ]] || continue
        name=$(basename "$folder")
        [[ -f $folder/report.html ]] || runmanager report "$folder" >>"$KEPT/said/report.txt" 2>&1
        rm -rf "$KEPT/sweeps/$name"
        mkdir -p "$KEPT/sweeps/$name"
        tar -C "$folder" --exclude=checkpoint.pt --exclude=best.pt --exclude='events.out.*' --exclude='.*' -cf - sweep.json \
            $(cd "$folder" && ls -d results.* epochs.csv comparison.* report.html runs 2>/dev/null) |
            tar -C "$KEPT/sweeps/$name" -xf -
    done
    tar -C "$WORK" -czf "$RESULTS/.archive" gpu-results && mv "$RESULTS/.archive" "$RESULTS/gpu-results.tar.gz"
    cp "$SUMMARY" "$RESULTS/summary.tsv"
}

# part NAME MOST_SECONDS: its function `part_NAME` in a shell of its own, for so long at most.
part() {
    local name=$1 most=$2 left=$((SECONDS_IN_ALL - SECONDS)) began=$SECONDS status ended
    [[ " $PARTS " == *" $name "* ]] || return 0
    if ((left < 10)); then
        printf '%s\t0\tnot begun: the time was over\n' "$name" >>"$SUMMARY"
        keep
        return 0
    fi
    [[ -z $SMALL ]] || most=$((most * 10)) # two busy cores take their time
    ((most < left)) || most=$left
    # SIGTERM lets a sweep's runs end their epoch and its driver write the tables; no other sweep begins after it.
    timeout --kill-after=15 "$most" bash -c "set -uE -o pipefail; IS_OVER= STATUS=0
        trap 'IS_OVER=1' TERM; trap 'STATUS=\$?' ERR; part_$name; exit \$STATUS" >"$KEPT/said/$name.txt" 2>&1
    status=$?
    case $status in
    0) ended=ok ;;
    124 | 137) ended="cut off after $most s" ;;
    *) ended="status $status" ;;
    esac
    printf '%s\t%d\t%s\n' "$name" "$((SECONDS - began))" "$ended" | tee -a "$SUMMARY"
    [[ $ended == ok ]] || tail -n 15 "$KEPT/said/$name.txt"
    keep
}

# Where a CPU stands in, what only CUDA has is left out, and there is little of everything.
FAST="tensorboard.enabled=false checkpoint.every=0"
if [[ $DEVICE == cuda ]]; then
    GRAPHS=false,true EAGER_PRECISIONS=fp32,tf32,bf16,fp16 PRECISIONS=fp32,tf32,bf16 PAIR=cpu,cuda CAPTURED=true
else
    GRAPHS=false,auto EAGER_PRECISIONS=fp32,bf16 PRECISIONS=fp32,bf16 PAIR=cpu CAPTURED=auto
fi
if [[ -n $SMALL ]]; then
    IMAGES=2000 BATCHES=500,1000 SIZES=200,1000 DEPTHS=2,4 WIDE=6 EPOCHS=7 LONG=7 COLOURED=64 COLOURED_BATCH=32
    TUTORIAL="--rounds 1 --seconds 1" TRACKING=$TUTORIAL CHECKED="loading or batches_on or bytes or phases"
else
    IMAGES=60000 BATCHES=1000,10000,20000 SIZES=100,1000,10000,60000 DEPTHS=2,4,6,8,10,12 WIDE=14 EPOCHS=7 LONG=20
    COLOURED=20000 COLOURED_BATCH=500 TUTORIAL="--rounds 8 --seconds 18" TRACKING="--rounds 5" CHECKED=
fi

part_facts() {
    date --iso-8601 | tee "$KEPT/day.txt"
    { [[ -n $COMMIT ]] && echo "$COMMIT" || git -C "$REPO" rev-parse HEAD || echo unknown; } | tee "$KEPT/commit.txt"
    df -h /dev/shm /tmp || true
    g++ --version || echo "there is no C++ compiler"
    nvidia-smi || echo "nvidia-smi is not there"
    "$PYTHON" -c "
from benchmarks.page import describe_machine
print(describe_machine('$DEVICE'))" | tee "$KEPT/machine.txt"
    runmanager doctor
}

part_data() {
    "$PYTHON" -c "
import pathlib, sys
from benchmarks.mnist_files import generate
generate(pathlib.Path('$RUNMANAGER_DATA'), num_training=$IMAGES, num_test=$IMAGES // 6)"
}

part_ceilings() { runmanager doctor --calibrate --threads "$("$PYTHON" -c 'import torch; print(torch.get_num_threads())')"; }

part_checks() {
    # Each test as it ends, so that what was cut off is known up to there; none takes the time of the others. A warning
    # that CUDA alone gives is listed at the end, and hides nothing.
    local at_once=
    "$PYTHON" -c "import xdist" && at_once="-n 6"
    tested tests/gpu/test_cuda_runs.py
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=4 tested tests/gpu/test_built_in_job.py tests/gpu/test_sharing.py $at_once
}

tested() {
    RUNMANAGER_TEST_DEVICE=$DEVICE "$PYTHON" -m pytest "$@" -v --tb=short --durations=10 -p no:cacheprovider \
        --timeout=120 --timeout-method=signal -W default -k "$CHECKED"
}

part_epoch() {
    local cell="dataset=mnist batch_size=1000 eval_batch_size=10000 loader=resident device=$DEVICE epochs=$LONG $FAST"
    sweep epoch $cell "graphs=$GRAPHS" "precision=$EAGER_PRECISIONS"
    # On a machine that cannot compile the tables say so, and lack nothing else.
    sweep epoch $cell "graphs=$CAPTURED" compile=true || echo "compile=true could not be measured"
    tables epoch "--axis graphs" "--axis precision" "--axis compile"
}

part_devices() {
    sweep devices experiment=cuda_vs_cpu dataset=mnist "batch_size=$BATCHES" "device=$PAIR" "epochs=$EPOCHS" \
        checkpoint.every=0
    tables devices "--axis device" "--axis num_workers"
}

part_tutorial() {
    "$PYTHON" -m benchmarks.tutorial_epoch --device "$DEVICE" $TUTORIAL | tee "$KEPT/tables/tutorial.md"
}

part_crossover() {
    # SGD in one kernel everywhere: else a captured step's update would not be captured with it.
    local cell="experiment=gpu_crossover optimizer.fused=true epochs=12 $FAST"
    sweep crossover $cell "model.depth=$DEPTHS" "device=$PAIR"
    sweep crossover $cell "model.depth=$DEPTHS,$WIDE" "device=$DEVICE" "graphs=$CAPTURED"
    sweep crossover $cell "model.depth=$WIDE" "device=$PAIR"
    tables crossover "--axis device+graphs --crossover num_parameters" "--axis graphs"
}

part_tracking() {
    "$PYTHON" -m benchmarks.tracking_overhead --device "$DEVICE" $TRACKING | tee "$KEPT/tables/tracking.md"
}

part_profile() {
    "$PYTHON" -m benchmarks.gpu_profile --device "$DEVICE" --data "$RUNMANAGER_DATA" | tee "$KEPT/tables/profile.md"
}

part_regions() {
    sweep regions dataset=mnist "batch_size=$SIZES" eval_batch_size=1000 loader=resident "device=$DEVICE" \
        "graphs=$GRAPHS" epochs=12 $FAST
    tables regions "--axis graphs --crossover batch_size"
}

part_resnet18() {
    sweep resnet18 dataset=fake "dataset.in_shape=[3,32,32]" "dataset.size=$COLOURED" dataset.val_size=1000 \
        model=torchvision model.architecture=resnet18 lr=0.001 "batch_size=$COLOURED_BATCH" eval_batch_size=500 loader=resident \
        "device=$DEVICE" "precision=$PRECISIONS" "channels_last=false,true" "graphs=$GRAPHS" epochs=7 $FAST
    tables resnet18 "--axis precision" "--axis graphs" "--axis channels_last"
}

export -f runmanager sweep tables tested
while read -r name; do export -f "${name?}"; done < <(compgen -A function part_)
export REPO WORK KEPT PYTHON DEVICE FAST GRAPHS EAGER_PRECISIONS PRECISIONS PAIR CAPTURED TUTORIAL TRACKING CHECKED \
    COMMIT IMAGES BATCHES SIZES DEPTHS WIDE EPOCHS LONG COLOURED COLOURED_BATCH

part facts 70
part data 30
part ceilings 45
part checks 150
part epoch 110
part devices 120
part tutorial 100
part crossover 110
part profile 60
part tracking 110
part regions 60
part resnet18 90
keep
cat "$SUMMARY"
echo "in $RESULTS: summary.tsv, gpu-results.tar.gz"
! grep -q $'\t\(status\|cut off\|not begun\)' "$SUMMARY"

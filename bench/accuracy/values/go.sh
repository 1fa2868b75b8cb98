#!/bin/bash
# Data-dependent programs: what the allocator of each did, and what it printed. One GPU, about two minutes. A line of `list` is a name, and
# the program if it is another: that is told by KIND which of its kinds it is.
here=$(cd "$(dirname "$0")" && pwd); w=$(mktemp -d); cd $here; export CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=2 here w PY=${PY:-python3}
one() { KIND=$1 timeout 100 $PY $here/measure.py $w/$1.json $here/${2:-$1}.py > $w/$1.log 2>&1; tail -c 2500 $w/$1.log > $w/$1.out; rm $w/$1.log; }
export -f one
timeout 250 xargs -P 6 -L 1 bash -c 'one "$@"' _ < $here/list
mkdir -p $OUT; tar czf $OUT/values.tgz -C $w .

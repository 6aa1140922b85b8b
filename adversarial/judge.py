"""judge.py FILE OUT [filter]: judge the wrong answers of a TOML file with three seeds."""
import json, sys, time, tomllib
from pathlib import Path
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.notebook import cuda_cell
from tests.exercise_answers import FILES, text_of

def entries(path):
    base = {}
    for file in FILES:
        for op, kernels in tomllib.loads(file.read_text()).items():
            for k, t in kernels.items(): base[op, k] = (t, file.stem)
    for op, kernels in tomllib.loads(Path(path).read_text()).items():
        for k, t in kernels.items():
            table, stem = base[op, k]
            for name, e in t["wrong"].items():
                yield {"op": op, "kernel": k, "name": name, "file": stem, "line": e.get("line", table.get("line")), "text": text_of(table, e), "input": e["input"]}

def judged(e, seed):
    op, launch = find(e["op"]), None
    if e["line"]: launch = cuda_cell.launch_options(op, cuda_cell.parsed(e["line"]))
    t = time.time()
    v = kept_kernels.check(e["op"], e["kernel"], e["text"], launch, seed)
    return v, time.time() - t

if __name__ == "__main__":
    path, out, *flt = sys.argv[1:]
    results = []
    seeds = (1, 2, 3)
    for e in entries(path):
        if flt and not any(f in f"{e['op']} {e['kernel']} {e['name']}" for f in flt): continue
        row = []
        for s in seeds:
            v, dt = judged(e, s)
            row.append((bool(v), v.kind, v.line.splitlines()[0][:160], dt))
        results.append({**{k: e[k] for k in ("file", "op", "kernel", "name", "input")}, "row": row})
        print("".join("A" if r[0] else "." for r in row), e["op"], e["kernel"], "|", e["name"], "|", next((r[1] + ": " + r[2] for r in row if not r[0]), ""), f"{row[0][3]:.1f}s", flush=True)
    Path(out).write_text(json.dumps(results, indent=1, ensure_ascii=False))
    for i, s in enumerate(seeds): print("seed", s, "accepted", sum(r["row"][i][0] for r in results), "of", len(results))

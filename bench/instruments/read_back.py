"""Twenty small scripts that read whole numbers on the GPU: each on the CPU, where they are true, and on a phantom H200.

    python bench/instruments/read_back.py --plimsoll BINARY [WORD ...]

Says of each script what differs. Only those are run whose name has one of the words. Needs no GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = {
    "dedup edges (unique dim=1, return_inverse)": """
e=torch.tensor([[0,1,1,2,0,3],[1,2,2,0,1,3]]).to(d)
u,inv=torch.unique(e,dim=1,return_inverse=True)
out=[u.shape[1],u.tolist(),inv.tolist()]
""",
    "bincount of labels, max class": """
y=torch.tensor([0,2,2,5,1,0,2]).to(d)
c=torch.bincount(y,minlength=4)
keep=(c>=2).nonzero().flatten()
out=[c.tolist(),int(c.max()),keep.tolist(),int(c.argmax()),(y==c.argmax()).sum().item()]
""",
    "nonzero of integer compares, any, count": """
x=torch.arange(12).view(3,4).to(d); y=torch.tensor([0,1,7,3]).to(d)
m=x==y
out=[m.any().item(),m.sum().item(),m.nonzero().tolist(),(x>5).sum(1).tolist(),torch.count_nonzero(x%3).item(),x[m].numel()]
if (x%5==4).any(): out.append("yes")
""",
    "topk of integer scores": """
s=torch.tensor([[3,9,1,7],[8,2,6,4]]).to(d)
v,i=s.topk(2,dim=1)
w,j=s.topk(1,largest=False)
out=[v.tolist(),i.tolist(),w.tolist(),j.tolist(),s.kthvalue(2,dim=1).values.tolist(),s.flatten().topk(3).indices.tolist()]
""",
    "argsort of lengths, batches by token budget": """
l=torch.tensor([5,2,9,4,7,1,3,8]).to(d)
o=l.argsort(descending=True); t=l[o]
c=torch.cumsum(t,0); b=c//16
out=[o.tolist(),torch.unique_consecutive(b,return_counts=True)[1].tolist(),int(b.max())+1,[int(t[b==k].max()) for k in range(2)]]
""",
    "cumsum/searchsorted packing": """
l=torch.tensor([5,2,9,4,7]).to(d)
cu=torch.nn.functional.pad(l.cumsum(0),(1,0)).to(torch.int32)
pos=torch.arange(int(cu[-1]),device=d)
seg=torch.searchsorted(cu,pos.to(torch.int32),right=True)-1
within=pos-cu[seg]
out=[cu.tolist(),seg.tolist(),within.tolist(),int(within.max())+1,int(cu.diff().max())]
""",
    "boolean mask of padding, unpad like flash-attn": """
m=torch.tensor([[1,1,1,0],[1,0,0,0],[1,1,1,1]]).to(d)
sl=m.sum(-1,dtype=torch.int32); ix=torch.nonzero(m.flatten(),as_tuple=False).flatten()
mx=sl.max().item(); cu=torch.nn.functional.pad(torch.cumsum(sl,0,dtype=torch.int32),(1,0))
h=torch.randn(3,4,8,device=d)
un=h.reshape(12,8)[ix]; back=torch.zeros(12,8,device=d); back[ix]=un
out=[ix.tolist(),mx,cu.tolist(),list(un.shape),list(h[m.bool()].shape), m.flip(1).argmax(1).tolist()]
""",
    "masked_select, masked_scatter, index_put accumulate": """
x=torch.arange(10).to(d); m=x%3==0
c=torch.zeros(4,dtype=torch.long,device=d)
c.index_put_((x%4,),torch.ones_like(x),accumulate=True)
y=torch.zeros(10,dtype=torch.long,device=d).masked_scatter_(m,torch.tensor([7,8,9,10]).to(d))
out=[x.masked_select(m).tolist(),c.tolist(),y.tolist(),torch.where(m)[0].tolist()]
""",
    "repeat_interleave with tensor counts": """
n=torch.tensor([2,0,3,1]).to(d)
b=torch.repeat_interleave(n); g=torch.randn(4,8,device=d).repeat_interleave(n,0)
out=[b.tolist(),list(g.shape),torch.arange(4,device=d).repeat_interleave(n).tolist(),(torch.arange(6,device=d)-(n.cumsum(0)-n)[b]).tolist(),int(n[b].sum())]
""",
    "segment ids, scatter_reduce": """
v=torch.tensor([4,1,7,3,9,2]).to(d); s=torch.tensor([0,0,2,1,2,1]).to(d)
k=int(s.max())+1
a=torch.zeros(k,dtype=torch.long,device=d).scatter_add_(0,s,v)
b=torch.full((k,),-1,device=d).scatter_reduce(0,s,v,"amax",include_self=False)
c=torch.zeros(k,dtype=torch.long,device=d).index_add_(0,s,torch.ones_like(s))
out=[k,a.tolist(),b.tolist(),c.tolist(),torch.zeros(k,dtype=torch.long,device=d).index_reduce_(0,s,v,"amax").tolist()]
""",
    "bucketize": """
b=torch.tensor([10,20,30]).to(d); l=torch.tensor([5,20,25,99,30]).to(d)
k=torch.bucketize(l,b); r=torch.bucketize(l,b,right=True)
out=[k.tolist(),r.tolist(),[int((k==i).sum()) for i in range(4)],torch.bucketize(torch.tensor([0.5,2.5]).to(d),torch.tensor([1.,2.,3.]).to(d)).tolist()]
""",
    "histc, histogram of floats": """
x=torch.tensor([0.,1.,1.,2.,3.5,4.]).to(d)
h=torch.histc(x,bins=4,min=0,max=4)
out=[h.tolist(),int(h.max()),int((h>1).sum()),x.int().bincount().tolist()]
""",
    "sparse 2-d indices, coalesce, mm": """
i=torch.tensor([[0,1,1,2,0],[2,0,0,2,2]]).to(d)
t=torch.sparse_coo_tensor(i,torch.randn(5,device=d),(3,3)).coalesce()
c=torch.tensor([[1,0,2],[0,0,3]]).to(d).to_sparse()
r=torch.tensor([[1,0,2],[0,0,3]]).to(d).to_sparse_csr()
out=[t._nnz(),t.indices().tolist(),c._nnz(),c.indices().tolist(),r._nnz(),r.crow_indices().tolist()]
""",
    "choices: argmax of logits compared with labels": """
g=torch.randn(64,10,device=d).argmax(1); y=torch.arange(64).to(d)%10
right=(g==y)
out=[0<=right.sum().item()<=64, 0<=right.float().mean().item()<=1, type(right.any().item()).__name__]
""",
    "int max/min/mode/median along dims, isin, flip": """
x=torch.tensor([[3,8,8],[9,1,4]]).to(d)
v,i=x.max(1); w,j=x.min(0)
out=[v.tolist(),i.tolist(),w.tolist(),j.tolist(),x.median().item(),x.median(1).values.tolist(),x.mode(1).values.tolist(),torch.isin(x,torch.tensor([8,1]).to(d)).tolist(),x.flip(0).tolist(),x.aminmax()[1].item(), x.prod().item()]
""",
    "cummax, diff, tril_indices, combinations": """
x=torch.tensor([1,5,2,7,3]).to(d)
out=[x.cummax(0).values.tolist(),x.cummin(0).values.tolist(),x.diff().tolist(),torch.tril_indices(3,3,device=d).tolist(),torch.combinations(x).shape[0],x.cumprod(0).tolist(),torch.triu_indices(3,3,1,device=d).tolist(), x.logcumsumexp(0).shape[0] if x.is_floating_point() else 0]
""",
    "moe: one_hot, position in expert, capacity": """
e=torch.tensor([0,2,1,0,0,2]).to(d)
o=torch.nn.functional.one_hot(e,4)
p=(o.cumsum(0)-1)*o
keep=(p<2)&(o>0)
cnt=o.sum(0)
out=[cnt.tolist(),p.max().item(),keep.sum().item(),keep.any(1).nonzero().flatten().tolist(),cnt.cpu().tolist(),torch.histc(e.float(),bins=4,min=0,max=3).tolist(),[len(x) for x in torch.zeros(6,2,device=d).split(cnt.tolist())]]
""",
    "graph: degree, remove self loops, add reverse, relabel": """
e=torch.tensor([[0,1,2,2,3],[1,0,2,3,0]]).to(d)
m=e[0]!=e[1]; e2=e[:,m]; n=int(e.max())+1
deg=torch.zeros(n,device=d).scatter_add_(0,e2[1],torch.ones(e2.shape[1],device=d))
both=torch.cat([e2,e2.flip(0)],1); key=both[0]*n+both[1]; u=key.unique()
rel=torch.full((n,),-1,device=d); sub=torch.tensor([0,3,2]).to(d); rel[sub]=torch.arange(3,device=d)
ins=(rel[e2]>=0).all(0)
out=[e2.shape[1],deg.tolist(),u.numel(),(u//n).tolist(),rel[e2[:,ins]].tolist(),int(deg.max()),(deg==0).sum().item()]
""",
    "lexsort, stable sort, searchsorted of rows": """
a=torch.tensor([2,1,2,1,3]).to(d); b=torch.tensor([9,8,7,6,5]).to(d)
o=b.argsort(); o=o[a[o].argsort(stable=True)]
x=torch.sort(torch.tensor([[3,1],[2,5]]).to(d),dim=0)
out=[o.tolist(),x.values.tolist(),x.indices.tolist(),torch.msort(a).tolist(),torch.tensor([True,False,True]).to(d).sort(descending=True,stable=True).indices.tolist(), a.unique(return_inverse=True,return_counts=True)[1].tolist()]
""",
    "CTC/RNNT lengths: eos position, first stop": """
t=torch.tensor([[5,6,2,0,0],[7,2,0,0,0],[4,5,6,7,2]]).to(d)
eos=(t==2).int().argmax(1); ln=eos+1
m=torch.arange(5,device=d)[None]<ln[:,None]
f=(t==2).nonzero()
out=[eos.tolist(),ln.max().item(),m.sum().item(),t[m].tolist(),f[:,1].tolist(),t[:, :int(ln.max())].shape[1],(t!=0).long().cumsum(1)[:,-1].tolist(),torch.where(t==0,-100,t).ne(-100).sum().item()]
""",
}
MARK = "read back: "


def read(command, body, device, folder):
    """What a script reads, and what was printed."""
    script = Path(folder, "script.py")
    report = f"for it in out:\n    print({MARK!r} + json.dumps(it))\n"
    script.write_text(f"import json, torch\nd = {device!r}\ntorch.manual_seed(0)\n{body}{report}")
    ran = subprocess.run([*command, sys.executable, script], capture_output=True, text=True)
    lines = (ran.stdout + "\n" + ran.stderr).splitlines()
    return [json.loads(it.partition(MARK)[2]) for it in lines if it.startswith(MARK)], lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    right = 0
    chosen = {k: v for k, v in SCRIPTS.items() if not given.words or any(it in k for it in given.words)}
    for name, body in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            true, _ = read([], body, "cpu", folder)
            found, lines = read([given.plimsoll, "predict", "--gpu", "h200", "--"], body, "cuda", folder)
        wrong = [f"    {i}: {a}, read {b}" for i, (a, b) in enumerate(zip(true, found)) if a != b]
        if len(true) != len(found):
            wrong.append(f"    {len(found)} of {len(true)} numbers; " + " ".join(lines[-3:]))
        right += not wrong
        print("right " if not wrong else "wrong ", name, flush=True)
        print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{right} of {len(chosen)}")


if __name__ == "__main__":
    main()

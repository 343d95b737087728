import sys; sys.path.insert(0,'/work/wt-publish/benchmarks')
import numpy as np, estimates as E, panda_mdp as pm, panda_mdp.meaning.estimate as M
xy, domain = E.grid(10,.3)
table = pm.exponential(pm.Problem(domain, np.arange(100), domain.distances(), 4.0))
side = (2 * xy > xy.max()).astype(int) @ [2, 1]
_, zones = E.zone_matrix(side.tolist(), domain)
matrix=np.array(table.matrix); rng=np.random.default_rng(0)
p=np.full((100,100),1e-4)
q=matrix.T@p@matrix
ch=M.Channel.of(table,zones)
for n in (300,10000):
    low,up=M.bounding_weights(ch.rows,zones,n)
    print(n,'slack low',(zones-ch.rows@low).mean(),(ch.rows@up-zones).mean(), 'w',np.abs(low).max(),np.abs(up).max())
    for _ in range(4):
        c=rng.multinomial(n,(q/q.sum()).ravel()).reshape(100,100)
        f=M.estimate_pairs(c,table,side.tolist())
        print(np.round(f.low,3).tolist(),np.round(f.high,3).tolist())

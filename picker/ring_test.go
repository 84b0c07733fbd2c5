package picker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ringOf(t *Table) *ring { return t.InferenceStrategy().(*ring) }

// namedFleet returns members triton-0, triton-1 ... with these weights.
func namedFleet(weights ...float64) ([]Member, []Status) {
	members, status := fleet(len(weights))
	for i, w := range weights {
		members[i] = Member{NewEndpoint(fmt.Sprint("triton-", i)), w}
	}
	return members, status
}

func queryFor(model string) *Query {
	return &Query{Request: Request{ModelID: model}, Key: Key(model), Now: 1}
}

// Where a model lives is part of the contract between clients, versions and restarts. The orders were computed by another program.
func TestRingGolden(t *testing.T) {
	for model, order := range map[string][]int{
		"llama-3-8b":       {2, 1, 0, 4, 3},
		"resnet50":         {3, 0, 2, 4, 1},
		"whisper-large-v3": {0, 4, 3, 1, 2},
		"bert-base":        {2, 1, 0, 3, 4},
		"densenet_onnx:3":  {0, 4, 1, 2, 3},
		"simple":           {1, 0, 2, 3, 4},
		"m":                {0, 2, 4, 1, 3},
		"arena-07":         {0, 2, 4, 3, 1},
	} {
		members, status := namedFleet(1, 1, 1, 1, 1)
		table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
		q := queryFor(model)
		assert.Equal(t, order[0], ringOf(table).Owner(q.Key))
		for n, want := range order { // each goes down after it was chosen
			reason := []Reason{Home, Replica, Overflow, Overflow, Overflow}[n]
			assert.Equal(t, Choice{Index: want, Reason: reason}, table.Pick(q), "%s, choice %d", model, n)
			status = slices.Clone(status)
			status[want] = Down
			table = table.WithStatus(status)
		}
		assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, table.Pick(q))
	}
}

// Against the line: whatever is down, over its bound or to be avoided, the choice is the first along the line that is none of them.
func TestRingWalksTheLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		n := 3 + rng.IntN(30)
		members, status := fleet(n)
		o := &RingOptions{VirtualNodes: 10, Replicas: 1 + rng.IntN(4), LoadFactor: 1.25}
		for i := range n {
			members[i].Weight = []float64{0.5, 1, 2}[rng.IntN(3)]
			if rng.IntN(3) == 0 {
				status[i] = Down
			}
			if rng.IntN(3) == 0 { // far above the mean, since most are idle
				members[i].Begin(1000*DefaultTokens, Home)
			}
		}
		status[0] = Ready
		members[0].Endpoint = NewEndpoint("idle")
		table := NewTable(nil, planOf(o), members, status, rng.Uint64)
		l := drawLine(ringOf(table).nodes)
		for range 30 {
			q := randomQuery(rng)
			if avoid := 1 + rng.IntN(n-1); rng.IntN(2) == 0 {
				q.Avoid = append(q.Avoid, members[avoid].Endpoint)
			}
			over := func(i int) bool {
				load := float64(members[i].CostInFlight())
				if load < shareFloor*members[i].Weight {
					return false
				}
				return load+DefaultTokens > 1.25*(table.costPerWeight(q.Now)+DefaultTokens/table.weight)*members[i].Weight
			}
			want := Choice{Index: -1}
			for rank, i := range l.walk(q.Key) {
				if status[i] == Ready && !over(i) && !slices.Contains(q.Avoid, members[i].Endpoint) {
					want = Choice{Index: i, Reason: Overflow}
					if rank == 0 {
						want.Reason = Home
					} else if rank < o.Replicas {
						want.Reason = Replica
					}
					break
				}
			}
			require.Equal(t, want, table.Pick(&q))
		}
	}
}

func TestRingWeights(t *testing.T) {
	const keys = 100_000
	rng := rand.New(rand.NewPCG(2, 2))
	owned := func(o *RingOptions, weights ...float64) []float64 {
		members, status := namedFleet(weights...)
		r := ringOf(NewTable(nil, planOf(o), members, status, rng.Uint64))
		shares := make([]float64, len(weights))
		for range keys {
			shares[r.Owner(rng.Uint64())] += 1. / keys
		}
		for i, s := range shares {
			assert.InDelta(t, s, r.Share(i), 0.01)
		}
		return shares
	}

	fine := &RingOptions{VirtualNodes: 1000, Replicas: 2, LoadFactor: 1.25}
	for i, share := range owned(fine, 1, 2, 3, 4) {
		assert.InEpsilon(t, float64(i+1)/10, share, 0.12)
	}
	lopsided := owned(fine, 1, 1, 1000, 0)
	assert.Positive(t, lopsided[0])
	assert.Positive(t, lopsided[1])
	assert.Greater(t, lopsided[2], 0.97)
	assert.Zero(t, lopsided[3])

	o := &RingOptions{VirtualNodes: 150}
	for weight, points := range map[float64]int{0: 0, -1: 0, 1e-9: 1, 1. / 150: 1, 0.5: 75, 1: 150, 1.01: 152, 100: 15_000, 1e12: 15_000} {
		assert.Equal(t, points, o.pointsOf(weight), "weight %v", weight)
	}
}

func TestRingWithoutPoints(t *testing.T) {
	members, status := namedFleet(0, 0)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, table.Pick(queryFor("m")))
	assert.Equal(t, -1, ringOf(table).Owner(1))
	assert.Zero(t, ringOf(table).Share(1))
}

// Endpoints that stay keep their models, and what leaves comes back to where it was.
func TestRingStability(t *testing.T) {
	members, status := namedFleet(slices.Repeat([]float64{1}, 100)...)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	homes := func(table *Table) map[string]string {
		m := map[string]string{}
		for i := range 20_000 {
			model := fmt.Sprint("model-", i)
			m[model] = table.Member(ringOf(table).Owner(Key(model))).ID()
		}
		return m
	}
	before := homes(table)
	for _, leaver := range []int{0, 42, 99} {
		without := slices.Clone(members)
		without[leaver] = Member{}
		table = NewTable(table, planOf(Defaults("ring")), without, status, rand.Uint64)
		moved := 0
		for model, home := range homes(table) {
			if before[model] == members[leaver].ID() {
				moved++
				require.NotEqual(t, before[model], home)
			} else {
				require.Equal(t, before[model], home)
			}
		}
		assert.InDelta(t, 200, moved, 120)

		// The same server is another Endpoint when it returns.
		back := slices.Clone(members)
		back[leaver].Endpoint = NewEndpoint(members[leaver].ID())
		table = NewTable(table, planOf(Defaults("ring")), back, status, rand.Uint64)
		require.Equal(t, before, homes(table))
		members = back
	}
}

// Readiness never touches the ring.
func TestRingSurvivesReadiness(t *testing.T) {
	members, status := fleet(10)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	r := table.InferenceStrategy()
	next := slices.Clone(status)
	next[3] = Down
	assert.Same(t, r, table.WithStatus(next).InferenceStrategy())
	assert.Same(t, r, NewTable(table, planOf(Defaults("ring")), slices.Clone(members), next, rand.Uint64).InferenceStrategy())
	other := &RingOptions{VirtualNodes: 150, Replicas: 3, LoadFactor: 1.25}
	assert.NotSame(t, r, NewTable(table, planOf(other), members, next, rand.Uint64).InferenceStrategy())
}

func TestRingWaitsForReplicas(t *testing.T) {
	members, _ := namedFleet(1, 1, 1, 1, 1)
	q := queryFor("m") // lives on 0, 2, 4, 1, 3
	pick := func(status ...Status) Choice {
		return NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64).Pick(q)
	}
	wait := Choice{Index: -1, Reason: Wait}
	assert.Equal(t, wait, pick(Pending, Ready, Ready, Ready, Ready), "the home")
	assert.Equal(t, wait, pick(Down, Ready, Pending, Ready, Ready), "the replica")
	assert.Equal(t, Choice{Index: 2, Reason: Replica}, pick(Down, Ready, Ready, Ready, Pending))
	assert.Equal(t, Choice{Index: 0, Reason: Home}, pick(Ready, Pending, Pending, Pending, Pending))
	assert.Equal(t, Choice{Index: 1, Reason: Overflow}, pick(Down, Ready, Down, Ready, Pending), "it is no replica that is pending")
	assert.Equal(t, wait, pick(Down, Down, Down, Down, Pending), "nothing else")

	q.Avoid = []*Endpoint{members[0].Endpoint}
	assert.Equal(t, Choice{Index: 2, Reason: Replica}, pick(Pending, Ready, Ready, Ready, Ready), "a tried one is not waited for")
	q.Avoid = nil

	members[0].Begin(1000*DefaultTokens, Home)
	assert.Equal(t, Choice{Index: 0, Reason: Home}, pick(Ready, Down, Pending, Down, Down), "a home over its bound is better than one that is not ready")
	members[0].End(1000 * DefaultTokens)
	members[0].Weight, members[2].Weight = 0, 0
	assert.Equal(t, Choice{Index: 4, Reason: Home}, pick(Pending, Ready, Pending, Ready, Ready), "without weight nothing is waited for")
}

// A model that is not hot fills its home up to the floor of overflow, then its replica, before any other endpoint gets a call.
func TestRingBound(t *testing.T) {
	members, status := namedFleet(1, 1, 1, 1, 1)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	q := queryFor("m")
	place := func() Choice {
		q.Now += 2 * totalsAge
		c := table.Pick(q)
		members[c.Index].Begin(q.Cost(), c.Reason)
		return c
	}
	const floor = overflowFloor / DefaultTokens
	for _, want := range []Choice{{Index: 0, Reason: Home}, {Index: 2, Reason: Replica}} {
		for i := range floor {
			require.Equal(t, want, place(), "call %d", i)
		}
	}
	require.Equal(t, Choice{Index: 4, Reason: Overflow}, place())
	// Above the floor the bound is a quarter above the mean.
	for range 20_000 {
		place()
	}
	total := 0
	for _, m := range members {
		total += m.InFlight()
	}
	loads := []int{members[0].InFlight(), members[2].InFlight(), members[4].InFlight(), members[1].InFlight(), members[3].InFlight()}
	require.Equal(t, 20_000+2*floor+1, total)
	bound := float64(total) / 5 * 1.25
	for _, n := range loads[:4] {
		assert.InDelta(t, bound, n, 3)
	}
	assert.Less(t, float64(loads[4]), bound)

	// When the load falls, the model is back at its home.
	for i, m := range members {
		for m.InFlight() > 10*i {
			m.End(q.Cost())
		}
	}
	assert.Equal(t, Choice{Index: 0, Reason: Home}, place())
}

// The bound is a multiple of the mean as it will be with the request.
func TestRingMeanIncludesRequest(t *testing.T) {
	members, status := namedFleet(1, 1)
	o := &RingOptions{VirtualNodes: 150, Replicas: 2, LoadFactor: 3}
	table := NewTable(nil, planOf(o), members, status, rand.Uint64)
	q := queryFor("m")
	home := ringOf(table).Owner(q.Key)
	members[home].Begin(shareFloor, Home)
	q.Tokens = 10 * shareFloor // (1+10) against 3 x (1+10)/2
	assert.Equal(t, Choice{Index: home, Reason: Home}, table.Pick(q))
}

func TestRingFloorScalesWithWeight(t *testing.T) {
	members, status := namedFleet(0.1, 1, 2, 1, 1)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	for _, weighted := range []struct{ index, calls int }{{0, 32}, {2, 640}, {1, 320}} {
		var q *Query
		for i := 0; q == nil; i++ {
			if model := fmt.Sprint("model-", i); ringOf(table).Owner(Key(model)) == weighted.index {
				q = queryFor(model)
			}
		}
		calls := 0
		for ; table.Pick(q).Index == weighted.index; calls++ {
			members[weighted.index].Begin(q.Cost(), Home)
		}
		assert.Equal(t, weighted.calls, calls, "endpoint %d", weighted.index)
		for range calls {
			members[weighted.index].End(q.Cost())
		}
	}
}

// A request that is larger than any bound goes where its model is, for where else should it go?
func TestRingGiantRequest(t *testing.T) {
	members, status := namedFleet(1, 1, 1, 1, 1)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	q := queryFor("m")
	q.Tokens = maxTokens
	members[0].Begin(DefaultTokens, Home)
	assert.Equal(t, Choice{Index: 0, Reason: Home}, table.Pick(q))

	for _, m := range members { // all of them over it
		m.Begin(10*overflowFloor, Home)
	}
	assert.Equal(t, Choice{Index: 2, Reason: Replica}, table.Pick(q), "the less loaded of the replicas")
	members[2].Begin(DefaultTokens, Home)
	assert.Equal(t, Choice{Index: 0, Reason: Home}, table.Pick(q), "the home among equals")
	status = slices.Clone(status)
	status[0], status[2] = Down, Down
	members[4].Begin(2*DefaultTokens, Home)
	assert.Equal(t, Choice{Index: 1, Reason: Overflow}, table.WithStatus(status).Pick(q), "replicas are down: the first two that are ready")
}

// Where a walk ends, all that is ready is looked at.
func TestRingLongWalk(t *testing.T) {
	members, status := fleet(500)
	for i := range status {
		status[i] = Down
	}
	status[123], status[456] = Ready, Ready
	members[123].Begin(1, Home)
	table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	rng := rand.New(rand.NewPCG(3, 3))
	far := 0
	for range 200 {
		q := randomQuery(rng)
		c := table.Pick(&q)
		require.Contains(t, []int{123, 456}, c.Index)
		if c.Index == 456 {
			far++
		}
		q.Avoid = []*Endpoint{members[456].Endpoint}
		require.Equal(t, 123, table.Pick(&q).Index)
	}
	assert.Greater(t, far, 150, "most walks end before they meet any, and the idle one is chosen")

	// A heavy endpoint that fills most of the ring is passed over and over.
	members, status = namedFleet(100, 0.01, 0.01)
	status[0] = Down
	table = NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
	for range 200 {
		q := randomQuery(rng)
		require.Positive(t, table.Pick(&q).Index)
	}
}

// The bound of 1.25 on counts alone loads a model in many places at moderate load; the floor keeps it on one.
func TestRingStaysHomeAtModerateLoad(t *testing.T) {
	servers := make([]*server, 8)
	for i := range servers {
		servers[i] = &server{workers: 4, service: lognormal(250*time.Millisecond, 0.8)}
	}
	s := simulate(1, Defaults("ring"), 4, servers...)
	models := make([]string, 40)
	for i := range models {
		models[i] = fmt.Sprint("model-", i)
	}
	for at := time.Duration(0); at < 100*time.Second; at += 20 * time.Millisecond {
		s.after(at, func() { s.call(s.rng.IntN(4), Request{ModelID: models[s.rng.IntN(len(models))]}, nil) })
	}
	s.run(200 * time.Second)
	for _, client := range s.clients {
		for i := range servers {
			assert.Zero(t, client.Member(i).Picks(Replica)+client.Member(i).Picks(Overflow))
			assert.Zero(t, client.Member(i).InFlight())
		}
	}
}

// heat makes a model work as much for a home as its share says, where 1 is what the mean endpoint does.
func heat(members []Member, model string, share float64, home int) {
	const work = 2 * minWork
	for i, m := range members {
		m.work.add(1, work)
		if i == home {
			m.models.add(Key(model), model).work.add(1, share*work)
		}
	}
}

// A hot model shares its replicas as soon as its home is busy; one that is not does not.
func TestRingReplicasAreForHotModels(t *testing.T) {
	for _, tc := range []struct {
		share float64
		want  Choice
	}{{hotShare + 0.01, Choice{Index: 2, Reason: Replica}}, {hotShare - 0.01, Choice{Index: 0, Reason: Home}}} {
		members, status := namedFleet(1, 1, 1, 1, 1)
		table := NewTable(nil, planOf(Defaults("ring")), members, status, rand.Uint64)
		heat(members, "m", tc.share, 0)
		q := queryFor("m")
		q.Now = 2
		members[0].Begin(shareFloor-1, Home)
		assert.Equal(t, Choice{Index: 0, Reason: Home}, table.Pick(q), "the home is not busy")
		members[0].Begin(shareFloor, Home)
		q.Now += 2 * totalsAge
		assert.Equal(t, tc.want, table.Pick(q), "share %v", tc.share)
		members[2].Begin(2*shareFloor-1, Home)
		assert.Equal(t, Choice{Index: 0, Reason: Home}, table.Pick(q), "the replica is as busy")
	}
}

package picker

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// probe is a strategy that remembers what it was built from and asked, and chooses the first ready endpoint.
type probe struct {
	name  string
	build Build
	asked []Query
}

type probeOptions struct{ Name string }

func (o *probeOptions) Strategy() string { return o.Name }
func (o *probeOptions) Validate() error  { return nil }
func (o *probeOptions) Build(b Build) Strategy {
	return &probe{name: o.Name, build: b}
}

func (p *probe) Pick(t *Table, q *Query) Choice {
	p.asked = append(p.asked, *q)
	return Choice{Index: int(t.Ready()[0]), Reason: Only}
}

func TestStatusString(t *testing.T) {
	assert.Equal(t, []string{"down", "pending", "ready"}, []string{Down.String(), Pending.String(), Ready.String()})
}

func TestTableView(t *testing.T) {
	members, status := namedFleet(1, 0, 2, math.NaN(), 1, 1)
	members[4] = Member{Weight: 1}
	status[5] = Down
	table := NewTable(nil, planOf(Defaults("p2c")), members, status, rand.Uint64)
	assert.Equal(t, 6, table.Len())
	assert.Equal(t, []uint32{0, 2}, table.Ready(), "no weight, a hole and what is down are not")
	assert.Equal(t, members[2], table.Member(2))
	assert.Equal(t, Down, table.Status(5))
	assert.Equal(t, status, table.Statuses())

	next := []Status{Down, Ready, Ready, Ready, Ready, Ready}
	other := table.WithStatus(next)
	assert.Equal(t, []uint32{2, 5}, other.Ready())
	assert.Equal(t, []uint32{0, 2}, table.Ready(), "a table does not change")
}

// Calls that name a model go to the inference strategy, updates and the rest to the other.
func TestTableChoosesStrategy(t *testing.T) {
	members, status := namedFleet(1, 1)
	table := NewTable(nil, Plan{Inference: &probeOptions{Name: "i"}, Update: &probeOptions{Name: "u"}}, members, status, rand.Uint64)
	for _, c := range []struct {
		request   Request
		inference bool
	}{
		{Request{ModelID: "m"}, true},
		{Request{ModelID: "m", Type: Inference}, true},
		{Request{ModelID: "m", Type: Update}, false},
		{Request{Type: Update}, false},
		{Request{Type: Inference}, false},
		{Request{}, false},
	} {
		i, u := table.inference.(*probe), table.update.(*probe)
		i.asked, u.asked = nil, nil
		assert.Equal(t, Choice{Index: 0, Reason: Only}, table.Pick(&Query{Request: c.request}))
		assert.Equal(t, c.inference, len(i.asked) == 1, "%+v", c.request)
		assert.Equal(t, c.inference, len(u.asked) == 0, "%+v", c.request)
	}
	assert.Same(t, table.inference, table.InferenceStrategy())
}

func TestTableRefuses(t *testing.T) {
	members, _ := namedFleet(1, 1, 0)
	p := &probeOptions{Name: "p"}
	pick := func(status ...Status) Choice {
		return NewTable(nil, planOf(p), members, status, rand.Uint64).Pick(queryFor("m"))
	}
	assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, pick(Down, Down, Down))
	assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, pick(Down, Down, Ready), "ready, without weight")
	assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, pick(Down, Down, Pending))
	assert.Equal(t, Choice{Index: -1, Reason: Wait}, pick(Down, Pending, Down))
	assert.Equal(t, Choice{Index: 1, Reason: Only}, pick(Pending, Ready, Down))
	assert.Equal(t, Choice{Index: -1, Reason: NoneReady}, NewTable(nil, planOf(p), nil, nil, rand.Uint64).Pick(queryFor("m")))
}

// Endpoints that were tried are avoided as long as there is another, and for good if the request says so.
func TestTableAvoids(t *testing.T) {
	members, status := namedFleet(1, 1, 1)
	status[2] = Down
	a, b, down := members[0].Endpoint, members[1].Endpoint, members[2].Endpoint
	for _, name := range Strategies() {
		table := NewTable(nil, planOf(Defaults(name)), members, status, rand.Uint64)
		for range 20 {
			q := queryFor("m")
			q.Avoid = []*Endpoint{a, down}
			assert.Equal(t, 1, table.Pick(q).Index)
			q.Avoid = []*Endpoint{b, down, a}
			assert.GreaterOrEqual(t, table.Pick(q).Index, 0)
			assert.Len(t, q.Avoid, 3, "the query is the caller's")
			q.Fresh = true
			assert.Equal(t, Choice{Index: -1, Reason: Tried}, table.Pick(q))
		}
	}
}

// Strategies are kept where nothing that they depend on has changed, and else know their predecessor.
func TestTableKeepsStrategies(t *testing.T) {
	members, status := namedFleet(1, 1)
	plan := Plan{Inference: &probeOptions{Name: "i"}, Update: &probeOptions{Name: "u"}}
	first := NewTable(nil, plan, members, status, rand.Uint64)
	i, u := first.inference.(*probe), first.update.(*probe)
	assert.Nil(t, i.build.Previous)
	assert.Equal(t, members, i.build.Members)
	assert.NotNil(t, i.build.Rand)

	same := Plan{Inference: &probeOptions{Name: "i"}, Update: &probeOptions{Name: "u"}}
	assert.Same(t, first, NewTable(first, same, slices.Clone(members), slices.Clone(status), rand.Uint64), "nothing changed")

	down := NewTable(first, same, slices.Clone(members), []Status{Ready, Down}, rand.Uint64)
	assert.Same(t, i, down.inference)
	assert.Same(t, u, down.update)
	assert.Same(t, i, first.WithStatus([]Status{Down, Down}).inference)

	grown := append(slices.Clone(members), Member{NewEndpoint("new"), 1})
	next := NewTable(down, same, grown, []Status{Ready, Down, Ready}, rand.Uint64)
	require.NotSame(t, i, next.inference)
	assert.Same(t, i, next.inference.(*probe).build.Previous)
	assert.Same(t, u, next.update.(*probe).build.Previous)

	heavier := slices.Clone(members)
	heavier[1].Weight = 2
	assert.NotSame(t, i, NewTable(first, same, heavier, status, rand.Uint64).inference)

	swapped := NewTable(first, Plan{Inference: &probeOptions{Name: "other"}, Update: &probeOptions{Name: "u"}}, members, status, rand.Uint64)
	assert.NotSame(t, i, swapped.inference)
	assert.Nil(t, swapped.inference.(*probe).build.Previous, "of another strategy nothing can be taken")
	assert.Same(t, u, swapped.update)
}

func TestCostPerWeight(t *testing.T) {
	members, status := namedFleet(1, 3, 5)
	status[2] = Down
	members[2].Begin(1_000_000, Home)
	table := NewTable(nil, planOf(&probeOptions{Name: "p"}), members, status, rand.Uint64)
	members[0].Begin(400, Home)
	now := int64(1e9)
	assert.Equal(t, 100., table.costPerWeight(now))

	members[1].Begin(400, Home)
	assert.Equal(t, 100., table.costPerWeight(now+totalsAge), "not yet older than it may be")
	assert.Equal(t, 100., table.costPerWeight(now-totalsAge), "time seen by a slower caller")
	assert.Equal(t, 200., table.costPerWeight(now+totalsAge+1))
	members[1].End(400)
	assert.Equal(t, 100., table.costPerWeight(0), "a clock that starts anew")
	assert.Equal(t, 100., table.WithStatus(slices.Clone(status)).costPerWeight(0))
}

// The sum is taken by whoever finds it too old, and is never far off: not even for those who come while it is taken first.
func TestCostPerWeightConcurrently(t *testing.T) {
	members, status := fleet(1000)
	for _, m := range members {
		m.Begin(100, Home)
	}
	for range 50 {
		table := NewTable(nil, planOf(&probeOptions{Name: "p"}), members, status, rand.Uint64)
		seen := make(chan float64, 400)
		start := make(chan struct{})
		var group sync.WaitGroup
		for g := range int64(4) {
			group.Go(func() {
				<-start
				for i := range int64(100) {
					seen <- table.costPerWeight(1 + i*totalsAge/3 + g)
				}
			})
		}
		close(start)
		group.Wait()
		close(seen)
		for mean := range seen {
			require.Equal(t, 100., mean)
		}
	}
}

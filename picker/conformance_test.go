package picker

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStrategies holds every registered strategy to what Strategy, Options and Table promise of it.
func TestStrategies(t *testing.T) {
	contract := []struct {
		name string
		test func(t *testing.T, name string)
	}{
		{"chooses what is usable", testChoosesUsable},
		{"one endpoint is enough", testOneEndpoint},
		{"reaches every endpoint", testReachesAll},
		{"does not allocate", testNoAllocation},
		{"same seed, same choices", testSameSeed},
		{"previous does not show", testPrevious},
		{"concurrent picks and swaps", testConcurrent},
		{"default options", testDefaults},
		{"options out of range", testOutOfRange},
	}
	require.NotEmpty(t, Strategies())
	for _, name := range Strategies() {
		t.Run(name, func(t *testing.T) {
			for _, c := range contract {
				t.Run(c.name, func(t *testing.T) { c.test(t, name) })
			}
		})
	}
}

// world is a random membership with holes and endpoints that are idle, busy, slow, without weight, or not connected.
type world struct {
	members []Member
	status  []Status
}

func randomWorld(rng *rand.Rand) world {
	n := 1 + rng.IntN(40)
	w := world{make([]Member, n), make([]Status, n)}
	weights := []float64{0, 0.001, 0.5, 1, 1, 1, 3}
	for i := range n {
		w.status[i] = []Status{Down, Pending, Ready, Ready, Ready}[rng.IntN(5)]
		w.members[i].Weight = weights[rng.IntN(len(weights))]
		if rng.IntN(6) == 0 {
			continue // a hole, and nothing else about it counts
		}
		e := NewEndpoint(fmt.Sprint("e", i))
		w.members[i].Endpoint = e
		for range rng.IntN(4) {
			e.Begin(uint32(1+rng.IntN(shareFloor)), Home)
		}
		if rng.IntN(2) == 0 {
			e.Observe(1, time.Duration(1+rng.IntN(int(time.Second))))
		}
	}
	return w
}

func (w *world) usable(i int) bool {
	return w.status[i] == Ready && w.members[i].Endpoint != nil && w.members[i].Weight > 0
}

func testChoosesUsable(t *testing.T, name string) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w := randomWorld(rng)
		table := NewTable(nil, planOf(Defaults(name)), w.members, w.status, rng.Uint64)
		for range 20 {
			q := randomQuery(rng)
			for range rng.IntN(6) {
				if e := w.members[rng.IntN(len(w.members))].Endpoint; e != nil {
					q.Avoid = append(q.Avoid, e)
				}
			}
			ready, better, pending := 0, 0, 0
			for i, m := range w.members {
				switch {
				case w.usable(i):
					ready++
					if !slices.Contains(q.Avoid, m.Endpoint) {
						better++
					}
				case w.status[i] == Pending && m.Endpoint != nil && m.Weight > 0:
					pending++
				}
			}
			avoid := slices.Clone(q.Avoid)
			c := table.Pick(&q)
			require.Equal(t, avoid, q.Avoid, "the query is the caller's")
			switch {
			case c.Index >= 0:
				require.True(t, w.usable(c.Index), "chose %d of %+v", c.Index, w)
				require.NotContains(t, []Reason{Wait, NoneReady}, c.Reason)
				if better > 0 {
					require.NotContains(t, q.Avoid, w.members[c.Index].Endpoint, "%d others are ready", better)
				}
			case c.Reason == Wait:
				require.Positive(t, pending)
			default:
				require.Equal(t, Choice{Index: -1, Reason: NoneReady}, c)
				require.Zero(t, ready+pending)
			}
		}
	}
}

func testOneEndpoint(t *testing.T, name string) {
	table := readyTable(Defaults(name), rand.Uint64, 1)
	e := table.Member(0).Endpoint
	for range 2000 { // far over any bound
		q := randomQuery(rand.New(rand.NewPCG(3, 4)))
		q.Avoid = []*Endpoint{e, e}
		c := table.Pick(&q)
		require.Zero(t, c.Index)
		e.Begin(q.Cost(), c.Reason)
	}
}

func testReachesAll(t *testing.T, name string) {
	rng := rand.New(rand.NewPCG(5, 6))
	table := readyTable(Defaults(name), rng.Uint64, 5)
	calls := make([]int, 5)
	for range 5000 {
		q := randomQuery(rng)
		calls[table.Pick(&q).Index]++
	}
	for i, n := range calls {
		assert.InDelta(t, 1000, n, 400, "endpoint %d", i)
	}
}

func testNoAllocation(t *testing.T, name string) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, state := range []string{"idle", "busy", "half down", "all down"} {
		table := readyTable(Defaults(name), rng.Uint64, 100)
		status := slices.Clone(table.Statuses())
		for i := range 100 {
			table.Member(i).Observe(1, time.Duration(1+i)*time.Millisecond)
			switch {
			case state == "busy":
				table.Member(i).Begin(maxTokens, Home)
			case state == "half down" && i%2 == 0, state == "all down":
				status[i] = Down
			}
		}
		table = table.WithStatus(status)
		q := randomQuery(rng)
		q.Avoid = []*Endpoint{table.Member(0).Endpoint, table.Member(1).Endpoint}
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			q.Key += 1 << 55
			q.Now += int64(time.Millisecond)
			table.Pick(&q)
		}), state)
	}
}

func testSameSeed(t *testing.T, name string) {
	choices := func() (all []Choice) {
		rng := rand.New(rand.NewPCG(9, 10))
		s := simulate(11, Defaults(name), 1, nil, nil, nil)
		for range 500 {
			q := randomQuery(rng)
			c := s.clients[0].Pick(&q)
			s.clients[0].Member(c.Index).Begin(q.Cost(), c.Reason)
			all = append(all, c)
		}
		return all
	}
	assert.Equal(t, choices(), choices())
}

func testPrevious(t *testing.T, name string) {
	rng := rand.New(rand.NewPCG(12, 13))
	options := Defaults(name)
	for range 50 {
		was, is := randomWorld(rng), randomWorld(rng)
		copy(is.members, was.members[:min(len(was.members), len(is.members))/2])
		choices := func(prev *Table) (all []Choice) {
			table := NewTable(prev, planOf(options), is.members, is.status, rand.New(rand.NewPCG(14, 15)).Uint64)
			keys := rand.New(rand.NewPCG(16, 17))
			for range 50 {
				q := randomQuery(keys)
				all = append(all, table.Pick(&q))
			}
			return all
		}
		prev := NewTable(nil, planOf(options), was.members, was.status, rng.Uint64)
		require.Equal(t, choices(nil), choices(prev))
	}
}

func testConcurrent(t *testing.T, name string) {
	members, status := fleet(20)
	options := Defaults(name)
	var current atomic.Pointer[Table]
	current.Store(NewTable(nil, planOf(options), members, status, rand.Uint64))
	var done atomic.Bool
	var picking sync.WaitGroup
	for g := range 3 {
		picking.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 18))
			for !done.Load() {
				table := current.Load()
				q := randomQuery(rng)
				c := table.Pick(&q)
				if !assert.True(t, c.Index >= 0 && table.Status(c.Index) == Ready, "%+v", c) {
					return
				}
				e := table.Member(c.Index).Endpoint
				e.Begin(q.Cost(), c.Reason)
				e.Observe(q.Now, time.Duration(rng.IntN(1e9)))
				e.End(q.Cost())
			}
		})
	}
	for i := range 200 {
		table := current.Load()
		if i%2 == 0 {
			next := slices.Clone(table.Statuses())
			next[i%20] = Down
			next[(i+10)%20] = Ready
			current.Store(table.WithStatus(next))
			continue
		}
		members = slices.Clone(members)
		members[i%20] = Member{NewEndpoint(fmt.Sprint("new", i)), 1}
		current.Store(NewTable(table, planOf(options), members, table.Statuses(), rand.Uint64))
	}
	done.Store(true)
	picking.Wait()
	for _, m := range members {
		assert.Zero(t, m.InFlight())
		assert.Zero(t, m.CostInFlight())
	}
}

func testDefaults(t *testing.T, name string) {
	o := Defaults(name)
	assert.Equal(t, name, o.Strategy())
	require.NoError(t, o.Validate())
	require.Equal(t, reflect.Pointer, reflect.TypeOf(o).Kind(), "Options are a pointer to a struct")
	if reflect.TypeOf(o).Elem().Size() > 0 {
		assert.NotSame(t, o, Defaults(name), "each call returns fresh Options")
	}

	data, err := json.Marshal(o)
	require.NoError(t, err)
	back := reflect.New(reflect.TypeOf(o).Elem()).Interface()
	require.NoError(t, json.Unmarshal(data, back))
	assert.Equal(t, o, back)
}

// testOutOfRange expects each number in the Options to have a range, and Validate to name the field that is outside.
func testOutOfRange(t *testing.T, name string) {
	options := reflect.TypeOf(Defaults(name)).Elem()
	for f := range options.NumField() {
		if !options.Field(f).IsExported() {
			continue
		}
		tag, _, _ := strings.Cut(options.Field(f).Tag.Get("json"), ",")
		require.NotEmpty(t, tag, "field %s has a JSON name", options.Field(f).Name)
		reject := func(set func(v reflect.Value)) {
			o := Defaults(name)
			v := reflect.ValueOf(o).Elem().Field(f)
			set(v)
			var field *FieldError
			if assert.ErrorAs(t, o.Validate(), &field, "%s = %v", tag, v) {
				assert.Equal(t, tag, field.Field)
				assert.Equal(t, fmt.Sprint(v), field.Got)
				assert.NotEmpty(t, field.Want)
			}
		}
		switch options.Field(f).Type.Kind() {
		case reflect.Int:
			for _, x := range []int64{-1, math.MaxInt32} {
				reject(func(v reflect.Value) { v.SetInt(x) })
			}
		case reflect.Int64: // a duration
			reject(func(v reflect.Value) { v.SetInt(-1) })
		case reflect.Float64:
			for _, x := range []float64{-1, math.Inf(1), math.NaN()} {
				reject(func(v reflect.Value) { v.SetFloat(x) })
			}
		}
	}
}

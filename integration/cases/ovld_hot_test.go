package cases

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// A hot model must not stay on one server while others idle (ray-project/ray#65691). Where servers say what they hold it is on one of them at first;
// when it has cooled down the copies that were made are used, wherever they are, and none is made any more. A ring has its calls go home again. It
// shares a model among its replicas, and among more only once these have so much to do that a load elsewhere is worth it: with the two of its defaults,
// which is what the default strategy does where servers say nothing, the wait is bounded by that and not by the case's 500 ms.
func TestOVLD04(t *testing.T) {
	t.Parallel()
	const most = 500 * time.Millisecond
	for name, test := range map[string]hot{
		"informed":       {`{}`, true, most},
		"uninformed":     {`{}`, false, 4 * time.Second},
		"three replicas": {`{"inference":{"strategy":"ring"},"ring":{"replicas":3}}`, false, most},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test.run) })
	}
}

type hot struct {
	config   string
	informed bool // servers say what they hold
	p99      time.Duration
}

func (h hot) run(t *testing.T) {
	const servers, models, takes = 4, 20, 100 * time.Millisecond
	f := rig.New(t, servers)
	ms := keeps(f, rig.Keeping{Slots: 12, Load: time.Second, Workers: 10}, takes)
	hot := rig.Model(0)
	for i := range models {
		for j, m := range ms {
			if j == i%servers || !h.informed {
				m.Has(rig.Model(i))
			}
		}
	}
	c := f.Client(rig.Setup{Options: dialOptions(h.config)})
	if h.informed {
		c.Informed(servers)
	} else {
		for _, b := range f.Backends {
			b.Answers(rig.GPUStats, rig.Refuses(codes.Unimplemented, "there is no such service"))
		}
		c.Ready(servers)
	}
	home := homeOf(t, f, hot)
	load := func(d time.Duration, rate float64) (all, its rig.Results) {
		all = during(t, d, rate, func(i int) rig.Result {
			if i%10 == 0 {
				return c.Send(rig.Model(1+i/10%(models-1)), limit)
			}
			return c.Send(hot, limit)
		})
		require.Empty(t, all.Failed(), "%v", all)
		return all, slices.DeleteFunc(slices.Clone(all), func(r rig.Result) bool { return r.Index%10 == 0 })
	}
	load(10*time.Second, 300) // loads it on others, if they do not have it
	all, its := load(20*time.Second, 300)
	t.Logf("hot: %v, p99 %v; %d loads", its.By(), percentile(all, .99), loads(ms))
	used := 0
	for _, n := range its.By() {
		if n > len(its)/50 {
			used++
		}
	}
	assert.GreaterOrEqual(t, used, 3, "servers that serve the hot model: %v", its.By())
	assert.LessOrEqual(t, percentile(all, .99), h.p99)

	load(5*time.Second, 5)
	before := loads(ms)
	_, cool := load(20*time.Second, 5)
	t.Logf("cool: %v", cool.By())
	if !h.informed {
		assert.GreaterOrEqual(t, cool.Share(home.Name), .95, "back at home: %v", cool.By())
		return
	}
	assert.Equal(t, before, loads(ms), "copies that are made when there is no need")
	assert.LessOrEqual(t, percentile(cool, 1), takes, "nobody waits")
}

// homeOf returns the server that a model is at home on by the ring.
func homeOf(t *testing.T, f *rig.Fleet, model string) *rig.Backend {
	ring := rig.ModelAware(t, `{}`, f.Endpoints()...)
	addr := ring.Pick(rig.ForModel(t.Context(), model), rig.Infer)
	for _, b := range f.Backends {
		if b.Addr() == addr {
			return b
		}
	}
	t.Fatalf("no server has %s", addr)
	return nil
}

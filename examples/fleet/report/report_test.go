package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

// sample is a report of five policies and 27 models.
func sample() *Report {
	r := &Report{
		Trace: Trace{Name: "arena <1>.csv", Rows: 1500, Models: 27},
		Setup: Setup{
			Servers: 8, Slots: 4, Workers: 4, Clients: 4, Rho: .7, Service: 250, Load: 5000, Deadline: 30000, Speed: 20, Warmup: 2, Passes: 10,
			Seeds: []uint64{1}, Measured: 167400, Faults: []Fault{{Fault: "slow:2x10@33%-66%", From: .33, To: .66}},
			Go: "go1.26.8", GRPC: "grpc v1.85.0", CPUs: 2,
		},
	}
	for i, name := range []string{"round_robin", "ring_hash", "least_request", "weighted_round_robin", "model_aware"} {
		p := Policy{Name: name, Figures: stats.Figures{
			Calls: 15000, Errors: 5000 * (4 - i), P50: 250, P95: 1200.4, P99: 30000 / float64(i+1), P999: 30000, ColdLoads: 1578 - 390*i,
			HitRate: .2 * float64(i+1), PeakToMeanLoad: 1.5, LateP99: 12,
		}}
		for j := range 100 {
			share := math.Pow(10, -4*float64(j)/99)
			p.Plots.Exceedance = append(p.Plots.Exceedance, stats.Point{X: min(30, .05*math.Pow(1/share, .8-.1*float64(i))), Y: share})
		}
		for j := range 40 {
			p.Plots.P99 = append(p.Plots.P99, stats.Point{X: (float64(j) + .5) * 4.185, Y: 1 + 10/float64(i+1) + math.Sin(float64(j))})
		}
		for m := range 27 {
			p.Plots.Models = append(p.Plots.Models, fmt.Sprintf("model-%02d", m+1))
			p.Plots.Share = append(p.Plots.Share, .26/float64(m+1))
			row := make([]float64, 8)
			for s := range row {
				row[s] = .4
				if i == 4 {
					row[s] = 0
				}
			}
			row[m%8] = 1
			p.Plots.Resident = append(p.Plots.Resident, row)
		}
		r.Policies = append(r.Policies, p)
	}
	r.Policies[4].Breakers = &breakers.Record{
		Changes: []breakers.Change{
			{At: -500, Channel: 0, Server: 3, From: "closed", To: "open", Reason: "before the measurement"},
			{At: 1000, Channel: 0, Server: 3, From: "open", To: "half-open", Reason: "open time is over"},
			{At: 2000, Channel: 0, Server: 3, From: "half-open", To: "closed", Reason: "3 probes succeeded"},
			{At: 50000, Channel: 1, Server: 2, From: "closed", To: "open", Reason: "5 calls <failed> in a row"},
			{At: 60000, Channel: 3, Server: 2, Model: "model-01", From: "closed", To: "open", Reason: "9 calls failed"},
		},
		Drains: []breakers.Drain{{Channel: 2, Server: 4, From: 100000, To: 120000}},
		Opened: []breakers.Opened{{Channel: 1, Server: 2, Totals: breakers.Totals{Trips: 1, InFlight: 7, Probes: 4, Failed: 12}}},
		Totals: breakers.Totals{Trips: 1, InFlight: 7, Probes: 4, Failed: 12},
	}
	return r
}

func TestTimeline(t *testing.T) {
	r := sample()
	all := r.timelines()
	require.Len(t, all, 1, "of the policies that have breakers")
	line := all[0]
	require.Len(t, line.Rows, 9)
	assert.Equal(t, "server 7", line.Rows[7].Name)
	assert.Equal(t, "2: model-01", line.Rows[8].Name)
	for _, row := range line.Rows {
		assert.Len(t, row.Lanes, 4)
	}
	x := axis{max: r.Setup.Measured, from: line.PlotX, to: line.PlotEnd}
	type stretch struct {
		class    string
		row      int
		channel  int
		from, to float64
		title    string
	}
	want := []stretch{
		{"open", 2, 1, 50000, r.Setup.Measured, "server 2, channel 1, 50 s to 167.4 s: open, 5 calls <failed> in a row"},
		{"open", 3, 0, 0, 1000, "server 3, channel 0, -0.5 s to 1 s: open, before the measurement"},
		{"half-open", 3, 0, 1000, 2000, "server 3, channel 0, 1 s to 2 s: half-open, open time is over"},
		{"open", 8, 3, 60000, r.Setup.Measured, "2: model-01, channel 3, 60 s to 167.4 s: open, 9 calls failed"},
		{"draining", 4, 2, 100000, 120000, "server 4, channel 2, 100 s to 120 s: draining"},
	}
	require.Len(t, line.Spans, len(want))
	for i, w := range want {
		got := line.Spans[i]
		assert.Equal(t, w.class, got.Class)
		assert.Equal(t, w.title, got.Title)
		assert.InDelta(t, line.Rows[w.row].Lanes[w.channel], got.Y, 1e-9, w.title)
		assert.InDelta(t, x.at(w.from), got.X, 1e-9, w.title)
		assert.InDelta(t, x.at(w.to)-x.at(w.from), got.Width, 1e-9, w.title)
	}
	assert.Equal(t, 1, line.ModelTrips)
	assert.Len(t, line.Changes, 5)
}

func TestJSON(t *testing.T) {
	r := sample()
	r.Policies[0].Runs = []stats.Figures{r.Policies[0].Figures}
	var b bytes.Buffer
	require.NoError(t, r.WriteJSON(&b))
	var got struct {
		Policies []map[string]any
		Setup    map[string]any
		Trace    map[string]any
	}
	d := json.NewDecoder(&b)
	require.NoError(t, d.Decode(&got))
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "one value and nothing else")
	require.Len(t, got.Policies, 5)
	p := got.Policies[1]
	assert.Equal(t, "ring_hash", p["name"])
	for key, want := range map[string]float64{"calls": 15000, "errors": 15000, "p50_ms": 250, "p95_ms": 1200.4, "p99_ms": 15000, "p999_ms": 30000,
		"cold_loads": 1188, "hit_rate": .4, "peak_to_mean_load": 1.5, "late_p99_ms": 12} {
		assert.InDelta(t, want, p[key], 1e-9, key)
	}
	assert.Contains(t, got.Policies[0], "runs")
	assert.NotContains(t, p, "runs")
	assert.EqualValues(t, 1500, got.Trace["rows"])
	assert.EqualValues(t, 5000, got.Setup["load_ms"])
}

func TestTable(t *testing.T) {
	r := sample()
	r.Setup.Seeds = []uint64{1, 2, 3}
	r.Policies[4].HitRate = .99999
	var b bytes.Buffer
	require.NoError(t, r.WriteTable(&b))
	assert.Equal(t, ""+
		"8 servers of 4 workers with memory for 4 models, load 0.7, 5 s to load a model, 4 clients, faults slow:2x10@33%-66%; 167.4 s of model time measured, medians of 3 seeds\n"+
		"\n"+
		"policy                  calls   errors   p50 ms   p95 ms   p99 ms   p99.9 ms   cold loads   hit rate   peak/mean load\n"+
		"round_robin            15,000   20,000      250    1,200   30,000     30,000        1,578     20.0 %             1.50\n"+
		"ring_hash              15,000   15,000      250    1,200   15,000     30,000        1,188     40.0 %             1.50\n"+
		"least_request          15,000   10,000      250    1,200   10,000     30,000          798     60.0 %             1.50\n"+
		"weighted_round_robin   15,000    5,000      250    1,200    7,500     30,000          408     80.0 %             1.50\n"+
		"model_aware            15,000        0      250    1,200    6,000     30,000           18     99.9 %             1.50\n", b.String())
}

func TestFaultNote(t *testing.T) {
	r := sample()
	assert.Empty(t, r.faultNote())
	r.Policies[0].ErrorCodes = map[string]int{"DeadlineExceeded": 1}
	var b bytes.Buffer
	require.NoError(t, r.WriteTable(&b))
	assert.Contains(t, b.String(), "\nErrors include calls that ran out of time")
	r.Setup.Faults = nil
	assert.Empty(t, r.faultNote())
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteHTML(&b))
	html := b.String()
	for _, id := range []string{"results", "distribution", "over-time", "breakers", "residency", "method"} {
		assert.Contains(t, html, `<h2 id="`+id+`">`)
	}
	assert.Equal(t, 4, strings.Count(html, "<svg "))
	assert.Equal(t, 5+5, strings.Count(html, `<path class="curve`), "a line in each chart for each policy")
	assert.NotRegexp(t, `https?:|src=|url\(|@import`, html, "nothing to load from elsewhere")
	assert.NotRegexp(t, `NaN|Inf|ZgotmplZ`, html)
	assert.Contains(t, html, "arena &lt;1&gt;.csv")
	assert.Contains(t, html, "slow:2x10@33%-66%")
	assert.Contains(t, html, "<title>model-01 on server 0: 100.0 % of the time</title>")
	assert.Contains(t, html, `<td class="best">6,000</td>`)
	assert.Contains(t, html, "<title>server 2, channel 1, 50 s to 167.4 s: open, 5 calls &lt;failed&gt; in a row</title>")
	assert.NotContains(t, html, `<td class="best">30,000</td>`, "all have the same p99.9")
	for _, svg := range regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(html, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
	}
}

func TestHTMLOfUnusualReports(t *testing.T) {
	for name, change := range map[string]func(r *Report){
		"one policy":     func(r *Report) { r.Policies = r.Policies[:1] },
		"eight policies": func(r *Report) { r.Policies = append(r.Policies, r.Policies[1], r.Policies[2], r.Policies[3]) },
		"no samples":     func(r *Report) { r.Policies[0].Plots.Exceedance, r.Policies[0].Plots.P99 = nil, nil },
		"200 servers":    func(r *Report) { r.Setup.Servers = 200 },
		"many models": func(r *Report) {
			for i := range r.Policies {
				p := &r.Policies[i].Plots
				p.Models, p.Share, p.Resident = append(p.Models, p.Models...), append(p.Share, p.Share...), append(p.Resident, p.Resident...)
			}
		},
		"latencies of zero": func(r *Report) { r.Policies[0].Plots.Exceedance[50].X, r.Policies[0].Plots.P99[0].Y = 0, 0 },
		"many channels":     func(r *Report) { r.Setup.Clients = 1000 },
		"many changes": func(r *Report) {
			b := r.Policies[4].Breakers
			for i := range 1000 {
				b.Changes = append(b.Changes, breakers.Change{At: float64(i), Channel: i, Server: i, Model: "m", From: "closed", To: "open"})
			}
		},
		"a long name": func(r *Report) { r.Policies[0].Plots.Models[0] = strings.Repeat("ü", 100) },
	} {
		t.Run(name, func(t *testing.T) {
			r := sample()
			change(r)
			var b bytes.Buffer
			require.NoError(t, r.WriteHTML(&b))
			assert.NotRegexp(t, `NaN|Inf|ZgotmplZ`, b.String())
		})
	}
}

func TestTicks(t *testing.T) {
	labels := func(a axis, label func(float64) string) []string {
		var named []string
		for _, m := range a.ticks(label) {
			if m.Label != "" {
				named = append(named, m.Label)
			}
		}
		return named
	}
	assert.Equal(t, []string{"50 ms", "100 ms", "200 ms", "500 ms", "1 s", "2 s", "5 s", "10 s", "20 s"},
		labels(axis{log: true, min: .05, max: 30, to: 100}, seconds))
	assert.Equal(t, []string{"0.01 %", "0.1 %", "1 %", "10 %", "100 %"}, labels(axis{log: true, min: 1e-4, max: 1, to: 100}, share))
	assert.Equal(t, []string{"0 s", "50 s", "100 s", "150 s"}, labels(axis{max: 167.4, to: 100}, seconds))
	assert.InDelta(t, 50, axis{log: true, min: .01, max: 100, to: 100}.at(1), 1e-9)
	assert.InDelta(t, 25, axis{min: 0, max: 40, to: 100}.at(10), 1e-9)
	assert.InDelta(t, 100, axis{min: 0, max: 40, to: 100}.at(1000), 1e-9)
}

func TestP99Windows(t *testing.T) {
	assert.Equal(t, 48, P99Windows(15000, 167*time.Second))
	assert.Equal(t, 1, P99Windows(60, time.Second))
	assert.Equal(t, 5, P99Windows(15000, 5*time.Second))
}

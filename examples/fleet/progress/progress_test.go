package progress

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

func show(bar bool, f stats.Figures) string {
	var b bytes.Buffer
	d := New(&b, bar)
	d.Begin(1, 5, "ring_hash", 7)
	d.Update(.5)
	d.End(f, 11640*time.Millisecond)
	return b.String()
}

func TestWithoutTerminal(t *testing.T) {
	assert.Equal(t, "[2/5] ring_hash            seed 7  15000 calls, 3 errors, p99 1200 ms, 82 cold loads, in 11.6 s\n",
		show(false, stats.Figures{Calls: 15000, Errors: 3, P50: 250, P99: 1200, ColdLoads: 82, LateP99: 20}))
}

func TestBar(t *testing.T) {
	got := show(true, stats.Figures{P50: 250})
	assert.Contains(t, got, "\r[2/5] ring_hash            seed 7  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░   0 %")
	assert.Contains(t, got, "\r[2/5] ring_hash            seed 7  ███████████████░░░░░░░░░░░░░░░  50 %")
	assert.Contains(t, got, "\r\x1b[K[2/5]", "the bar is erased before the line that stays")
}

func TestBusyMachine(t *testing.T) {
	assert.Contains(t, show(false, stats.Figures{P50: 250, LateP99: 300}), "calls were sent up to 300 ms late")
}

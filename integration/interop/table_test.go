package interop

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// row is what callers saw of one scenario under one policy.
type row struct {
	scenario string
	servers  string
	policy   string
	calls    int
	failed   int
	p99      time.Duration
	codes    string // of those that failed
}

// table is the rows of this run.
type table struct {
	mu   sync.Mutex
	rows []row
}

const header = "scenario\tservers\tpolicy\tcalls\tfailed\tp99\t"

func (r row) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%d ms\t%s",
		r.scenario, r.servers, r.policy, r.calls, r.failed, r.p99.Milliseconds(), r.codes)
}

// add adds what became of some calls.
func (tb *table) add(t *testing.T, scenario, servers, policy string, calls rig.Results) {
	r := row{
		scenario: scenario, servers: servers, policy: policy,
		calls: len(calls), failed: len(calls.Failed()), p99: p99(calls), codes: failures(calls),
	}
	t.Log(strings.ReplaceAll(r.String(), "\t", "  "))
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, r)
}

// p99 returns how long the 99th percentile of the calls took, failed ones included.
func p99(calls rig.Results) time.Duration {
	if len(calls) == 0 {
		return 0
	}
	byTime := slices.SortedFunc(slices.Values(calls), func(a, b rig.Result) int { return int(a.Took - b.Took) })
	return byTime[len(byTime)*99/100].Took
}

// failures lists the codes of the calls that failed, and how many had each.
func failures(calls rig.Results) string {
	by := calls.Codes()
	var list []string
	for _, c := range slices.Sorted(maps.Keys(by)) {
		if c != codes.OK {
			list = append(list, fmt.Sprintf("%d %v", by[c], c))
		}
	}
	return strings.Join(list, ", ")
}

func (tb *table) print(w io.Writer) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if len(tb.rows) == 0 {
		return
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, header)
	for _, r := range tb.rows {
		fmt.Fprintln(tab, r)
	}
	_ = tab.Flush()
}

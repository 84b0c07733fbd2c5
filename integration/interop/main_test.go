package interop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

var (
	rack   *servers.Rack
	logged *rig.Log
	rows   table
)

// left are the tests that are left out, by what INTEROP says.
var left = map[string]string{
	"":      "^Test(Smoke|Triton|MLServer|KServe|All)",
	"smoke": "^Test(Triton|MLServer|KServe|All)",
	"full":  "^TestSmoke",
}

func TestMain(m *testing.M) {
	logged = rig.CaptureLog()
	if err := choose(); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		rows.print(os.Stdout)
		os.Exit(code)
	}))
}

func choose() error {
	flag.Parse()
	tests, ok := left[os.Getenv("INTEROP")]
	if !ok {
		return fmt.Errorf("INTEROP is %q, want smoke, full or nothing", os.Getenv("INTEROP"))
	}
	if err := flag.Set("test.skip", tests); err != nil {
		return err
	}
	var err error
	rack, err = servers.NewRack(filepath.Join("..", "..", ".tmp", "interop"))
	return err
}

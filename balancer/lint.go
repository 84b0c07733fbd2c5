package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mlbalancer/mlbalancer/internal/strictjson"
)

// Lint reports everything that ParseConfig would reject in a service config's model_aware sections, and each key there that nothing
// reads, so that typos are found before they are deployed. It takes a whole service config, or just the policy's section, and
// looks into the child policies of other policies. Nil means that there is nothing to object to.
func Lint(serviceConfig string) error {
	fields, err := strictjson.Object([]byte(serviceConfig), "")
	if err != nil {
		return named(err)
	}
	list := slices.IndexFunc(fields, func(f strictjson.Field) bool { return f.Key == "loadBalancingConfig" })
	if list < 0 {
		return lintSection(json.RawMessage(serviceConfig))
	}
	found, errs := lintPolicies(fields[list].Value)
	if found == 0 && errs == nil {
		errs = append(errs, fmt.Errorf("%s: loadBalancingConfig does not name the policy", Name))
	}
	return errors.Join(errs...)
}

// lintPolicies lints all model_aware sections in a list of policies, and returns how many it found.
func lintPolicies(list json.RawMessage) (found int, errs []error) {
	var policies []map[string]json.RawMessage
	if err := json.Unmarshal(list, &policies); err != nil {
		return 0, []error{fmt.Errorf("%s: loadBalancingConfig: %w", Name, err)}
	}
	for _, p := range policies {
		for name, section := range p {
			if name == Name {
				found++
				if err := lintSection(section); err != nil {
					errs = append(errs, err)
				}
				continue
			}
			var parent struct {
				ChildPolicy json.RawMessage `json:"childPolicy"`
			}
			if json.Unmarshal(section, &parent) == nil && parent.ChildPolicy != nil {
				n, more := lintPolicies(parent.ChildPolicy)
				found += n
				errs = append(errs, more...)
			}
		}
	}
	return found, errs
}

func lintSection(section json.RawMessage) error {
	_, unknown, err := parse(section)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("%s: %s is not a known key", Name, path))
	}
	return errors.Join(errs...)
}

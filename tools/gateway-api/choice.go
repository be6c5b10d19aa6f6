package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// All profiles that there are.
var profiles = []suite.ConformanceProfile{
	suite.GatewayHTTPConformanceProfile,
	suite.GatewayTLSConformanceProfile,
	suite.GatewayTCPConformanceProfile,
	suite.GatewayUDPConformanceProfile,
	suite.GatewayGRPCConformanceProfile,
	suite.MeshHTTPConformanceProfile,
	suite.MeshGRPCConformanceProfile,
}

// A test, and where reports count it.
type counted struct {
	Name string `json:"name"`
	// The profiles that it belongs to.
	Profiles []suite.ConformanceProfileName `json:"profiles"`
	// Whether one of them counts it as core.
	IsCore bool `json:"isCore"`
}

// listed is all tests, in the order of their names.
func listed() []counted {
	all := []counted{}
	for _, test := range tests.ConformanceTests {
		it := counted{Name: test.ShortName, Profiles: []suite.ConformanceProfileName{}}
		for _, profile := range profiles {
			if profile.CoreFeatures.Union(profile.ExtendedFeatures).HasAll(test.Features...) {
				it.Profiles = append(it.Profiles, profile.Name)
			}
			if profile.CoreFeatures.HasAll(test.Features...) {
				it.IsCore = true
			}
		}
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b counted) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// supported is all that the suite knows of these profiles; of all of them, all that it knows.
func supported(names []suite.ConformanceProfileName) sets.Set[features.FeatureName] {
	found := sets.New[features.FeatureName]()
	for _, profile := range profiles {
		if slices.Contains(names, profile.Name) {
			found = found.Union(profile.CoreFeatures).Union(profile.ExtendedFeatures)
		}
	}
	if len(names) == len(profiles) {
		found = found.Union(features.SetsToNamesSet(features.AllFeatures))
	}
	return found
}

// choose finds the tests of these names, separated by commas, among those that these features
// allow; all of those where no name is given.
func choose(names string, allowed sets.Set[features.FeatureName]) ([]suite.ConformanceTest, error) {
	wanted := sets.New[string]()
	if names != "" {
		wanted.Insert(strings.Split(names, ",")...)
	}
	missing := wanted.Clone()
	chosen := []suite.ConformanceTest{}
	for _, test := range tests.ConformanceTests {
		isWanted := names == "" || wanted.Has(test.ShortName)
		if isWanted && allowed.HasAll(test.Features...) {
			chosen = append(chosen, test)
			missing.Delete(test.ShortName)
		}
	}
	if missing.Len() > 0 {
		return nil, fmt.Errorf("no such tests in these profiles: %v", sets.List(missing))
	}
	return chosen, nil
}

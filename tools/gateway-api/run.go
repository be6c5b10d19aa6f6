package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"
)

// The questions that one client may ask the API server in a second: the tests look often, and
// whoever waits for its own client measures that.
const questionsPerSecond = 200

// run runs the chosen tests with all features of the chosen profiles, and writes the report.
func run(t *testing.T) {
	options := conformance.DefaultOptions(t)
	allowed := supported(options.ConformanceProfiles)
	chosen, err := choose(*only, allowed)
	require.NoError(t, err)
	options.SupportedFeatures = sets.List(allowed)
	options.ManifestFS = []fs.FS{manifests{conformance.Manifests}}
	options.RestConfig.QPS = questionsPerSecond
	options.RestConfig.Burst = 2 * questionsPerSecond
	stretch(&options.TimeoutConfig, *patience)
	options.Hook = progress(len(chosen))

	all, err := suite.NewConformanceTestSuite(options)
	require.NoError(t, err)
	hasRun := false
	// Tests that run side by side end after this function.
	t.Cleanup(func() {
		if hasRun {
			report(t, all, options.ReportOutputPath)
		}
	})
	all.Setup(t, chosen)
	if allowed.Has(features.SupportGateway) {
		t.Run("SupportedFeatures", func(t *testing.T) { classTellsAll(t, all) })
	}
	hasRun = true
	require.NoError(t, all.Run(t, chosen))
}

// stretch has the suite wait longer where it leaves that to whoever runs it. It bounds the time to
// consistency, and other times are what is tested.
func stretch(timeouts *config.TimeoutConfig, times float64) {
	for _, timeout := range []*time.Duration{
		&timeouts.CreateTimeout,
		&timeouts.DeleteTimeout,
		&timeouts.GetTimeout,
		&timeouts.GatewayMustHaveAddress,
		&timeouts.GatewayMustHaveCondition,
		&timeouts.GatewayStatusMustHaveListeners,
		&timeouts.GatewayListenersMustHaveConditions,
		&timeouts.ListenerSetMustHaveCondition,
		&timeouts.ListenerSetListenersMustHaveConditions,
		&timeouts.GWCMustBeAccepted,
		&timeouts.HTTPRouteMustNotHaveParents,
		&timeouts.HTTPRouteMustHaveCondition,
		&timeouts.TLSRouteMustHaveCondition,
		&timeouts.TCPRouteMustHaveCondition,
		&timeouts.UDPRouteMustHaveCondition,
		&timeouts.RouteMustHaveParents,
		&timeouts.NamespacesMustBeReady,
		&timeouts.LatestObservedGenerationSet,
		&timeouts.DefaultTestTimeout,
	} {
		*timeout = time.Duration(float64(*timeout) * times)
	}
}

// progress tells people of each test that has ended. The log of all is for those who look for why.
func progress(count int) func(*testing.T, suite.ConformanceTest, *suite.ConformanceTestSuite) {
	var ended atomic.Int32
	return func(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
		verdict := "passed"
		switch {
		case t.Failed():
			verdict = "FAILED"
		case t.Skipped():
			verdict = "skipped"
		}
		fmt.Fprintf(os.Stderr, "%3d of %d %s %s\n", ended.Add(1), count, verdict, test.ShortName)
	}
}

// classTellsAll checks that the class claims what is tested here, no less and no more. Features of
// the mesh are none of a class.
func classTellsAll(t *testing.T, all *suite.ConformanceTestSuite) {
	ofMesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	expected := []string{}
	for _, feature := range sets.List(features.SetsToNamesSet(features.AllFeatures)) {
		if !ofMesh.Has(feature) {
			expected = append(expected, string(feature))
		}
	}
	class := &gatewayv1.GatewayClass{}
	name := types.NamespacedName{Name: all.GatewayClassName}
	require.NoError(t, all.Client.Get(context.Background(), name, class))
	claimed := []string{}
	for _, feature := range class.Status.SupportedFeatures {
		claimed = append(claimed, string(feature.Name))
	}
	require.Equal(t, expected, claimed)
}

// report writes the report, with its profiles in order, and tells people of it.
func report(t *testing.T, all *suite.ConformanceTestSuite, path string) {
	report, err := all.Report()
	require.NoError(t, err)
	slices.SortFunc(report.ProfileReports, func(a, b confv1.ProfileReport) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, profile := range report.ProfileReports {
		fmt.Fprintf(os.Stderr, "%s: %s\n", profile.Name, profile.Summary)
	}
	if path == "" {
		return
	}
	text, err := yaml.Marshal(report)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

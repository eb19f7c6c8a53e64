// Package manifests checks the Compose project and the Kubernetes manifests of deploy against their schemas, and
// against the flags of the programs.
package manifests

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

var helps = map[string]string{} // by program

// help returns the help of a program, which names the environment variables.
func help(t *testing.T, program string) string {
	t.Helper()
	if helps[program] != "" {
		return helps[program]
	}
	c := exec.Command("go", "run", "./cmd/"+strings.TrimPrefix(filepath.Base(program), "lockstep-"), "--help")
	c.Dir = "../.."
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s --help: %v", program, err)
	}
	helps[program] = string(out)
	return helps[program]
}

// known fails if a variable of a container is not one of the program's.
func known(t *testing.T, service, program, variable string) {
	t.Helper()
	if strings.HasPrefix(variable, "LOCKSTEP_") && !strings.Contains(help(t, program), "$"+variable+"]") {
		t.Errorf("%s: %s has no variable %s", service, program, variable)
	}
}

func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../../deploy/compose/compose.yaml"},
		cli.WithEnv([]string{"INFLUX_TOKEN=t", "INFLUX_PASSWORD=p"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 5 {
		t.Errorf("services %v; want a controller, two agents, a broker and InfluxDB", project.ServiceNames())
	}
	for name, service := range project.Services {
		if !strings.HasPrefix(service.Image, "lockstep:") {
			continue
		}
		for variable := range service.Environment {
			known(t, name, service.Entrypoint[0], variable)
		}
	}
}

func TestKubernetes(t *testing.T) {
	file, err := os.ReadFile("../../deploy/kubernetes/lockstep.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	var namespaces []string
	sets, services := map[string]*apps.StatefulSet{}, map[string]*core.Service{} // by name
	for _, document := range bytes.Split(file, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		kinds[kind.Kind]++
		object := map[string]any{"Namespace": &core.Namespace{}, "Service": &core.Service{}, "StatefulSet": &apps.StatefulSet{}}[kind.Kind]
		if object == nil {
			t.Fatalf("unexpected kind %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		named := object.(meta.Object)
		if named.GetName() == "" {
			t.Errorf("a %s has no name", kind.Kind)
		}
		switch object := object.(type) {
		case *core.Namespace:
			namespaces = append(namespaces, object.Name)
			continue
		case *core.Service:
			services[object.Name] = object
		case *apps.StatefulSet:
			sets[object.Name] = object
			checkSet(t, object)
		}
		if !slices.Contains(namespaces, named.GetNamespace()) {
			t.Errorf("%s %s: its namespace %q is in no earlier document", kind.Kind, named.GetName(), named.GetNamespace())
		}
		set, is := object.(*apps.StatefulSet)
		if !is || set.Name == "influxdb" {
			continue
		}
		for _, container := range set.Spec.Template.Spec.Containers {
			for _, variable := range container.Env {
				known(t, set.Name, container.Command[0], variable.Name)
			}
			if !strings.HasPrefix(container.Image, "lockstep:") {
				t.Errorf("%s has the image %s", set.Name, container.Image)
			}
		}
	}
	if kinds["StatefulSet"] != 3 || kinds["Service"] != 3 || kinds["Namespace"] != 1 {
		t.Errorf("kinds %v", kinds)
	}
	for name, service := range services {
		checkService(t, service, sets[name])
	}
	for name, set := range sets {
		if services[set.Spec.ServiceName] == nil {
			t.Errorf("StatefulSet %s: no Service %q", name, set.Spec.ServiceName)
		}
	}
}

// checkSet checks the required fields of a StatefulSet, and that its references lead to its own parts.
func checkSet(t *testing.T, set *apps.StatefulSet) {
	t.Helper()
	pod := set.Spec.Template
	wrong := func(format string, a ...any) {
		t.Helper()
		t.Errorf("StatefulSet %s: "+format, append([]any{set.Name}, a...)...)
	}
	if set.APIVersion != "apps/v1" || set.Spec.Replicas == nil {
		wrong("needs apps/v1 and replicas")
	}
	if set.Spec.Selector == nil || len(set.Spec.Selector.MatchLabels) == 0 ||
		!labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
		wrong("its selector %v does not match its pods %v", set.Spec.Selector, pod.Labels)
	}
	volumes := map[string]bool{} // by name: used
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = false
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		volumes[claim.Name] = false
		if len(claim.Spec.AccessModes) == 0 || claim.Spec.Resources.Requests.Storage().IsZero() {
			wrong("claim %s needs accessModes and a storage request", claim.Name)
		}
	}
	if len(pod.Spec.Containers) == 0 {
		wrong("no containers")
	}
	for _, container := range pod.Spec.Containers {
		if container.Name == "" || container.Image == "" {
			wrong("a container needs a name and an image")
		}
		for _, mount := range container.VolumeMounts {
			if _, known := volumes[mount.Name]; !known || mount.MountPath == "" {
				wrong("mount %q at %q: no such volume, or no path", mount.Name, mount.MountPath)
			}
			volumes[mount.Name] = true
		}
		for _, variable := range container.Env {
			if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil && (from.SecretKeyRef.Name == "" || from.SecretKeyRef.Key == "") {
				wrong("variable %s: its secret needs a name and a key", variable.Name)
			}
		}
	}
	for name, used := range volumes {
		if !used {
			wrong("volume %s is mounted nowhere", name)
		}
	}
	if affinity := pod.Spec.Affinity; affinity != nil {
		for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if term.TopologyKey == "" || !labels.SelectorFromSet(term.LabelSelector.MatchLabels).Matches(labels.Set(pod.Labels)) {
				wrong("its anti-affinity does not apply to its own pods")
			}
		}
	}
}

// checkService checks that a service leads to the pods of the set with its name, and to ports that they have.
func checkService(t *testing.T, service *core.Service, set *apps.StatefulSet) {
	t.Helper()
	if set == nil || len(service.Spec.Selector) == 0 ||
		!labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) {
		t.Errorf("Service %s selects %v, which are no pods of a StatefulSet of its name", service.Name, service.Spec.Selector)
		return
	}
	if len(service.Spec.Ports) == 0 && service.Spec.ClusterIP != core.ClusterIPNone {
		t.Errorf("Service %s has no ports", service.Name)
	}
	for _, port := range service.Spec.Ports {
		if !slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].Ports, func(p core.ContainerPort) bool {
			return p.ContainerPort == port.Port && p.Name == port.Name
		}) {
			t.Errorf("Service %s: its pods have no port %d with the name %s", service.Name, port.Port, port.Name)
		}
	}
}

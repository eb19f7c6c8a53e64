// Package manifests checks the Compose project and the Kubernetes manifests of deploy against their schemas, and
// against the flags of the programs.
package manifests

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if len(project.Services) != 4 {
		t.Errorf("services %v; want a controller, two agents and InfluxDB", project.ServiceNames())
	}
	for name, service := range project.Services {
		if name == "influxdb" {
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
	if kinds["StatefulSet"] != 3 || kinds["Service"] != 2 || kinds["Namespace"] != 1 {
		t.Errorf("kinds %v", kinds)
	}
}

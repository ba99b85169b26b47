"""Mistakes that people make in manifests, each planted into a good one. All must be caught: by the schemas, or by the
rules."""
BASE, VOLCANO, COSCHEDULING, JOBSET, RUNTIME = "base", "gang-volcano", "gang-coscheduling", "jobset", "trainer"


def at(documents, kind, *path):
    value = next(each for each in documents if each["kind"] == kind)
    for word in path:
        value = value[word]
    return value


def spec(documents):
    return at(documents, "MPIJob", "spec")


def pod(documents, role="Worker"):
    return spec(documents)["mpiReplicaSpecs"][role]["template"]["spec"]


def container(documents, role="Worker"):
    return pod(documents, role)["containers"][0]


def change(value, **fields):
    value.update(fields)


def rename(documents, name):
    """The job and all that refers to it."""
    at(documents, "MPIJob", "metadata").update(name=name)
    policy = at(documents, "NetworkPolicy", "spec")
    for place in (policy["podSelector"], policy["ingress"][0]["from"][0]["podSelector"],
                  policy["egress"][0]["to"][0]["podSelector"]):
        place["matchLabels"] = {"training.kubeflow.org/job-name": name}


# Whose job it is to catch it, what it is planted into, what it is, and how it is done.
SCHEMA, RULES = "schema", "rules"
MISTAKES = (
    (SCHEMA, BASE, "a typing error in a field", lambda d: spec(d).update(slotPerWorker=4)),
    (SCHEMA, BASE, "a number as text", lambda d: spec(d).update(slotsPerWorker="4")),
    (SCHEMA, BASE, "a field at the wrong level", lambda d: spec(d).update(cleanPodPolicy="Running")),
    (SCHEMA, BASE, "an implementation that is none", lambda d: spec(d).update(mpiImplementation="Gyre")),
    (SCHEMA, BASE, "a list that is none", lambda d: change(container(d), command="gyrerun")),
    (SCHEMA, BASE, "a container without a name", lambda d: container(d).pop("name")),
    (SCHEMA, BASE, "a field that the operator's CRD prunes", lambda d: change(pod(d), schedulingGroup={"name": "g"})),
    (SCHEMA, BASE, "an old apiVersion", lambda d: at(d, "MPIJob").update(apiVersion="kubeflow.org/v1")),
    (SCHEMA, VOLCANO, "another scheduler's field", lambda d: at(d, "PodGroup", "spec").update(minReplicas=3)),
    (SCHEMA, JOBSET, "a Job's field in a JobSet", lambda d: at(d, "JobSet", "spec").update(completions=4)),
    (SCHEMA, RUNTIME, "processes as text", lambda d: at(d, "TrainingRuntime", "spec", "mlPolicy", "mpi").update(
        numProcPerNode="auto")),
    (RULES, BASE, "too long a name", lambda d: rename(d, "g" * 55)),
    (RULES, BASE, "a name with a dot", lambda d: rename(d, "my.job")),
    (RULES, BASE, "a policy for another job", lambda d: at(d, "NetworkPolicy", "spec", "podSelector", "matchLabels")
        .update({"training.kubeflow.org/job-name": "other"})),
    (RULES, BASE, "more slots than processors", lambda d: spec(d).update(slotsPerWorker=5)),
    (RULES, BASE, "slots that are not the GPUs", lambda d: [container(d)["resources"][each].update(
        {"nvidia.com/gpu": "8"}) for each in ("requests", "limits")]),
    (RULES, BASE, "GPUs requested, not limited", lambda d: container(d)["resources"]["requests"].update(
        {"nvidia.com/gpu": "4"})),
    (RULES, BASE, "a launcher that waits in a gang", lambda d: spec(d).update(
        launcherCreationPolicy="WaitForWorkersReady")),
    (RULES, BASE, "a deadline that nobody asked for", lambda d: spec(d)["runPolicy"].update(activeDeadlineSeconds=86400)),
    (RULES, BASE, "a record that goes by itself", lambda d: spec(d)["runPolicy"].update(ttlSecondsAfterFinished=3600)),
    (RULES, BASE, "a small launcher for many workers", lambda d: spec(d)["mpiReplicaSpecs"]["Worker"].update(
        replicas=100)),
    (RULES, BASE, "a word that Kubernetes replaces", lambda d: change(container(d, "Launcher"), args=["sh", "$(HOME)"])),
    (RULES, BASE, "two mounts at one path", lambda d: container(d)["volumeMounts"].append(
        {"name": "tmp", "mountPath": "/dev/shm"})),
    (RULES, BASE, "workers that stay", lambda d: spec(d)["runPolicy"].update(cleanPodPolicy="None")),
    (RULES, BASE, "root's key folder", lambda d: spec(d).update(sshAuthMountPath="/root/.ssh")),
    (RULES, BASE, "a launcher that is restarted", lambda d: spec(d)["mpiReplicaSpecs"]["Launcher"].update(
        restartPolicy="OnFailure")),
    (RULES, BASE, "/dev/shm on a disk", lambda d: pod(d)["volumes"][0]["emptyDir"].pop("medium")),
    (RULES, BASE, "/dev/shm as large as the memory", lambda d: pod(d)["volumes"][0]["emptyDir"].update(
        sizeLimit="8Gi")),
    (RULES, BASE, "root", lambda d: pod(d, "Launcher").pop("securityContext")),
    (RULES, BASE, "a capability added", lambda d: container(d)["securityContext"].update(
        capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]})),
    (RULES, BASE, "a probe of port 22", lambda d: container(d).update(readinessProbe={"tcpSocket": {"port": 22}})),
    (RULES, BASE, "a mount without a volume", lambda d: pod(d)["volumes"].pop(1)),
    (RULES, VOLCANO, "a gang without the launcher", lambda d: at(d, "PodGroup", "spec").update(minMember=2)),
    (RULES, VOLCANO, "no gang object", lambda d: d.remove(at(d, "PodGroup"))),
    (RULES, VOLCANO, "half of the pods with another scheduler", lambda d: pod(d).pop("schedulerName")),
    (RULES, COSCHEDULING, "the other scheduler's gang object", lambda d: at(d, "PodGroup").update(
        apiVersion="scheduling.volcano.sh/v1beta1")),
    (RULES, JOBSET, "a size that is not the pods'", lambda d: at(d, "JobSet", "spec", "replicatedJobs", 0, "template",
                                                             "spec").update(completions=8, parallelism=8)),
    (RULES, JOBSET, "a deadline that nobody asked for", lambda d: at(d, "JobSet", "spec", "replicatedJobs", 0, "template",
                                                                    "spec").update(activeDeadlineSeconds=86400)),
    (RULES, JOBSET, "a store at another name", lambda d: at(d, "JobSet", "metadata").update(name="other")),
)

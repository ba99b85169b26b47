"""What operators and schedulers ask of manifests beyond their schemas, and what this project asks of its own. Each rule
yields what is wrong; `check` takes all documents that are applied together."""
import re

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"  # Volcano
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"  # scheduler-plugins
JOB_LABEL = "training.kubeflow.org/job-name"
GPU = "nvidia.com/gpu"
LONGEST_LABEL = 63
UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
         "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text):
    number, unit = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text)).groups()
    return float(number) * UNITS[unit]


def container_errors(container, where):
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}: may escalate its privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{where}: its root file system can be written"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{where}: keeps capabilities"
    resources = container.get("resources", {})
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    if not {"cpu", "memory"} <= set(limits):
        yield f"{where}: no limits of cpu and memory"
    if requests != limits:
        yield f"{where}: requests are not limits"


def expansion_errors(container, where):
    """Kubernetes replaces $(NAME) in words and variables; $$ is a $."""
    words = container.get("command", []) + container.get("args", [])
    for word in words + [str(entry.get("value", "")) for entry in container.get("env", ())]:
        if "$(" in word.replace("$$", ""):
            yield f"{where}: Kubernetes would replace what is in {word!r}"


def pod_errors(spec, where):
    context = spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield f"{where}: may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield f"{where}: no seccomp profile"
    if spec.get("automountServiceAccountToken") is not False:
        yield f"{where}: gets a token of the API server"
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    if len(volumes) != len(spec.get("volumes", ())):
        yield f"{where}: two volumes of one name"
    for container in spec.get("initContainers", []) + spec["containers"]:
        name = f"{where} {container['name']}"
        yield from container_errors(container, name)
        yield from expansion_errors(container, name)
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        if len(set(paths)) != len(paths):
            yield f"{name}: two mounts at one path"
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in volumes:
                yield f"{name}: mounts {mount['name']}, which is no volume"
            elif mount["mountPath"] == "/dev/shm":
                yield from shm_errors(volumes[mount["name"]], container, name)


def shm_errors(volume, container, where):
    directory = volume.get("emptyDir", {})
    memory = container.get("resources", {}).get("limits", {}).get("memory")
    if directory.get("medium") != "Memory" or "sizeLimit" not in directory:
        yield f"{where}: /dev/shm is not memory with a size"
    elif memory and quantity(directory["sizeLimit"]) > quantity(memory) / 2:
        yield f"{where}: /dev/shm may take more than half of the memory limit"


def mpijob_errors(job, documents):
    name, spec = job["metadata"]["name"], job["spec"]
    replicas = spec["mpiReplicaSpecs"]
    launcher, worker = replicas.get("Launcher"), replicas.get("Worker")
    if not launcher or not worker:
        yield "a launcher and workers are needed"
        return
    workers = worker.get("replicas", 0)
    last = f"{name}-worker-{workers - 1}"
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(last) > LONGEST_LABEL:
        yield f"{last} is no DNS label of {LONGEST_LABEL} characters at most"
    if launcher.get("replicas") != 1 or workers < 1:
        yield "not one launcher and some workers"
    if (launcher.get("restartPolicy"), worker.get("restartPolicy")) != ("Never", "OnFailure"):
        yield "restartPolicy is not Never for the launcher and OnFailure for workers"
    if spec.get("launcherCreationPolicy") != "AtStartup":
        yield "a launcher that waits for its workers deadlocks gangs"
    if spec.get("sshAuthMountPath") != "/home/mpiuser/.ssh":
        yield "keys are not mounted where the image has its user"
    policy = spec.get("runPolicy", {})
    if policy.get("cleanPodPolicy") != "Running":
        yield "idle workers would keep their GPUs: cleanPodPolicy is not Running"
    if "backoffLimit" not in policy:
        yield "runPolicy.backoffLimit is left to chance"
    yield from limit_errors(policy)
    if policy.get("schedulingPolicy", {}).get("minAvailable", workers + 1) != workers + 1:
        yield f"schedulingPolicy.minAvailable is not {workers + 1}"
    yield from role_errors(launcher["template"], worker["template"], spec.get("slotsPerWorker"))
    yield from launcher_memory_errors(launcher["template"], workers)
    yield from gang_errors([launcher["template"], worker["template"]], workers + 1, documents)
    yield from selector_errors(worker["template"]["spec"], name)


def limit_errors(spec):
    """A job may take weeks: it ends, and its record goes, when its user says so."""
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        if field in spec:
            yield f"{field}: a limit that nobody asked for"


def launcher_memory_errors(launcher, workers):
    """For each worker there is an ssh, up to 1 MiB of output that waits, and the kernel's buffers."""
    memory = launcher["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("memory", "0")
    if quantity(memory) < (512 + 8 * workers) * 2**20:
        yield f"the launcher has too little memory for {workers} workers: {memory}"


def role_errors(launcher, worker, slots):
    for role, template in (("launcher", launcher), ("worker", worker)):
        yield from pod_errors(template["spec"], role)
    command = launcher["spec"]["containers"][0].get("command", [])
    if command[:1] != ["gyrerun"] or "/etc/mpi/hostfile" not in command:
        yield "the launcher does not run gyrerun with the operator's hostfile"
    container = worker["spec"]["containers"][0]
    if container.get("command", [""])[0] != "/usr/sbin/sshd" or "/home/mpiuser/.sshd_config" not in container["command"]:
        yield "a worker does not run the image's sshd"
    ports = [port["containerPort"] for port in container.get("ports", ())]
    if ports != [2222] or container.get("readinessProbe", {}).get("tcpSocket", {}).get("port") != 2222:
        yield "a worker does not listen, or is not probed, at port 2222"
    limits = container.get("resources", {}).get("limits", {})
    gpus = int(limits.get(GPU, 0))
    if gpus and slots != gpus:
        yield f"{slots} slots for {gpus} GPUs"
    if slots is None or slots < 1 or ("cpu" in limits and slots > quantity(limits["cpu"])):
        yield f"{slots} slots for {limits.get('cpu')} processors"


def gang_errors(templates, members, documents):
    groups = {(each["apiVersion"].split("/")[0], each["metadata"]["name"]): each["spec"].get("minMember")
              for each in documents if each["kind"] == "PodGroup"}
    for kind, mark, scheduler in (("annotations", GROUP_ANNOTATION, "volcano"),
                                  ("labels", GROUP_LABEL, "scheduler-plugins-scheduler")):
        api = "scheduling.volcano.sh" if kind == "annotations" else "scheduling.x-k8s.io"
        names = {template.get("metadata", {}).get(kind, {}).get(mark) for template in templates}
        scheduled = {template["spec"].get("schedulerName") == scheduler for template in templates}
        if names == {None}:
            if True in scheduled or any(group[0] == api for group in groups):
                yield f"half a gang: no pod has {mark}"
            continue
        if len(names) != 1 or None in names or scheduled != {True}:
            yield f"only some pods are in the gang of {scheduler}"
        elif groups.get((api, next(iter(names)))) != members:
            yield f"no PodGroup {next(iter(names))} of {api} with minMember {members}"


def selectors(value):
    """All values of the label that names a job, wherever they stand."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "matchLabels":
                yield each.get(JOB_LABEL)
            else:
                yield from selectors(each)
    elif isinstance(value, list):
        for each in value:
            yield from selectors(each)


def selector_errors(spec, name):
    for found in selectors(spec):
        if found != name:
            yield f"a selector means job {found}, not {name}"


def policy_errors(documents):
    jobs = {each["metadata"]["name"] for each in documents if each["kind"] == "MPIJob"}
    for policy in (each for each in documents if each["kind"] == "NetworkPolicy"):
        for found in selectors(policy["spec"]) if jobs else ():
            if found not in jobs:
                yield f"NetworkPolicy {policy['metadata']['name']} selects job {found}, which is not there"
        if set(policy["spec"].get("policyTypes", ())) != {"Ingress", "Egress"}:
            yield f"NetworkPolicy {policy['metadata']['name']} leaves a direction open"
    if jobs and not any(each["kind"] == "NetworkPolicy" for each in documents):
        yield "no NetworkPolicy"


def jobset_errors(jobset):
    name = jobset["metadata"]["name"]
    if not jobset["spec"].get("network", {}).get("publishNotReadyAddresses"):
        yield "ranks cannot find rank 0 before it is ready"
    yield from limit_errors(jobset["spec"])
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        yield from limit_errors(spec)
        pod = spec["template"]["spec"]
        size = spec.get("completions")
        yield from pod_errors(pod, job["name"])
        variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0].get("env", ())}
        if spec.get("completionMode") != "Indexed" or size != spec.get("parallelism") or job.get("replicas", 1) != 1:
            yield "not all ranks run at once, or they have no index"
        if variables.get("GYRE_SIZE") != str(size):
            yield f"GYRE_SIZE is {variables.get('GYRE_SIZE')} for {size} pods"
        if variables.get("GYRE_STORE", "").split(":")[0] != f"{name}-{job['name']}-0-0.{name}":
            yield f"GYRE_STORE {variables.get('GYRE_STORE')} is not the first pod"
        if len(f"{name}-{job['name']}-0-{(size or 1) - 1}") > LONGEST_LABEL:
            yield "the pods' names are too long"
        for needed in ("GYRE_RANK", "GYRE_JOB_ID", "GYRE_EPOCH", "GYRE_SECRET_FILE"):
            if needed not in variables:
                yield f"{needed} is missing"


def runtime_errors(runtime):
    jobs = {job["name"]: job["template"]["spec"]["template"] for job in
            runtime["spec"]["template"]["spec"]["replicatedJobs"]}
    mpi = runtime["spec"]["mlPolicy"].get("mpi", {})
    if set(jobs) != {"launcher", "node"} or not mpi:
        yield "Trainer's MPI plugin needs the jobs launcher and node"
        return
    if mpi.get("sshAuthMountPath") != "/home/mpiuser/.ssh":
        yield "keys are not mounted where the image has its user"
    if any(job["spec"]["containers"][0]["name"] != "node" for job in jobs.values()):
        yield "Trainer looks for containers called node"
    yield from role_errors(jobs["launcher"], jobs["node"], mpi.get("numProcPerNode"))


def check(documents):
    """What is wrong with the documents, as one application."""
    errors = list(policy_errors(documents))
    for each in documents:
        if each["kind"] == "MPIJob":
            errors += mpijob_errors(each, documents)
        if each["kind"] == "JobSet":
            errors += jobset_errors(each)
        if each["kind"] in ("TrainingRuntime", "ClusterTrainingRuntime"):
            errors += runtime_errors(each)
    return errors

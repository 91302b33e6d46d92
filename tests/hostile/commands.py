"""The table of commands that cannot be done: what is typed, and what is answered.

Each of them ends with the exit code 2 and one line on stderr, and leaves nothing behind. `bad_files` writes the files.
"""

from __future__ import annotations

# What the user types after `dasp explain`, and part of what is answered. The output is out.parquet, if nothing is said.
CASES: dict[str, tuple[str, str]] = {
    # the data
    "no such file": ("small:build absent.csv", "absent.csv: no such file"),
    "unknown kind of file": ("small:build rows.xlsx", "unknown kind of file '.xlsx'"),
    "empty CSV": ("small:build empty.csv", "empty.csv: empty"),
    "CSV without rows": ("small:build header.csv", "header.csv: has no rows"),
    "CSV with text": ("small:build text.csv", "column 'b': row 1 (the first row is 0): not a number: 'two'"),
    "CSV with names": (
        "small:build named.csv", "'P0'; --id 'the name' takes it as the rows' name, --drop 'the name' leaves it out"),
    "CSV with words as targets": (
        "small:build named.csv --target 'the name'", "not a number: 'P0'; class indices 0, 1, … are needed"),
    "ragged CSV": ("small:build ragged.csv", "row 1 (the first row is 0): Expected 4 columns, got 3"),
    "CSV without names": ("small:build nameless.csv", "the first line has numbers"),
    "CSV with a column without a name": ("small:build unnamed.csv", "column 2 has no name"),
    "CSV that is no text": ("small:build binary.csv", "not a text file"),
    "CSV with a column twice": ("small:build twice.csv", "two columns are called 'a'"),
    "missing value": ("small:build missing.csv", "column 'c' is missing or NaN"),
    "infinite value": ("small:build infinite.csv", "column 'a' is inf, which is not finite"),
    "too large for the model": ("small:build huge.csv", "is 1e+300, which is not finite in float32"),
    "no usable row": ("small:build hopeless.csv --on-bad-row skip", "all 2 rows have missing"),
    "missing target": ("small:build labelled.csv --target missing", "no target (column 'missing') in row 0"),
    "output without a name": (
        "small:build rows.csv --target w", "if it is an output of the model, name these by --output-names"),
    "missing column": ("small:build rows.csv --columns a,b,c,e", "no column 'e'; there are 'a', 'b'"),
    "column twice": ("small:build rows.csv --columns a,a,b,c", "names 'a' twice"),
    "no such id": ("small:build rows.csv --id name", "no column 'name'"),
    "no such column to drop": ("small:build rows.csv --drop e", "no column 'e'"),
    "all columns dropped": ("small:build rows.csv --drop a,b,c,d", "no column is left"),
    "too few columns": ("small:build rows.csv --columns a,b", "does not take rows of rows.csv, of shape (2,)"),
    "too many columns": ("small:build labelled.csv --drop missing", "of shape (6,)"),
    "label among the columns": (
        "small:build labelled.csv --drop half,missing", "; 5 columns are inputs; --columns or --drop choose them"),
    "CSV with a quotation mark in its header": (
        "small:build quoted.csv", "quoted.csv: the first line has a quotation mark that nothing ends"),
    "CSV with lines in its header, and text": (
        "small:build lines.csv", "column 'c': row 1 (the first row is 0): not a number: 'k'"),
    "truncated Parquet": ("small:build truncated.parquet", "Parquet magic bytes not found"),
    "damaged Parquet": ("small:build damaged.parquet", "Deserializing page header failed"),
    "Parquet that is text": ("small:build text.parquet", "this is not a parquet file"),
    "empty Parquet": ("small:build empty.parquet", "Parquet file size is 0 bytes"),
    "Parquet with text": ("small:build strings.parquet", "column 'a' is of type"),
    "Parquet with lists": ("small:build lists.parquet", "column 'a' is of type list"),
    "Parquet with dates": ("small:build dates.parquet", "column 'a' is of type timestamp"),
    "Parquet with a column twice": ("small:build twice.parquet", "two columns are called 'a'"),
    "Parquet without rows": ("small:build none.parquet", "none.parquet: has no rows"),
    "Parquet with nulls": ("small:build nulls.parquet", "column 'b' is missing or NaN in row 2"),
    "truncated NPY": ("small:build truncated.npy", "ends before an array of shape (10, 4) does"),
    "NPY that is text": ("small:build text.npy", "text.npy: is not a file of numpy.save"),
    "NPY with a pickle": ("small:build objects.npy", "has dtype object; numbers are needed"),
    "NPY of one dimension": ("small:build flat.npy", "has shape (4,); rows along dimension 0"),
    "NPY of strings": ("small:build strings.npy", "has dtype <U1; numbers are needed"),
    "NPY of complex numbers": ("small:build complex.npy", "has dtype complex128"),
    "NPY without rows": ("small:build none.npy", "none.npy: has no rows"),
    "NPY of another shape": ("small:build cube.npy", "of shape (2, 2)"),
    "NPY with NaN": ("small:build nan.npy", "column 'x3' is missing or NaN in row 5"),
    "NPY with a signalling NaN": ("small:words signalling.npy", "column 'x2' is missing or NaN in row 1"),
    "array with NaN": ("small:pictures nans.npy", "entry (1, 2) is missing or NaN in row 0"),
    "columns of an NPY": ("small:build rows.npy --columns a", "--columns names columns, but rows.npy has none"),
    "id of an NPY": ("small:build rows.npy --id a", "--id names columns, but"),
    "target column of an NPY": ("small:build rows.npy --target a", "--target names columns, but"),
    "NPZ with two arrays": ("small:build two.npz", "has 2 arrays (x, y); one is needed"),
    "NPZ without arrays": ("small:build zero.npz", "has 0 arrays"),
    "NPZ that is no archive": ("small:build text.npz", "not a zip file"),
    "truncated NPZ": ("small:build truncated.npz", "truncated.npz: cannot be read: File is not a zip file"),
    "NPZ with a damaged array": ("small:build damaged.npz", "Bad CRC-32"),
    "NPZ with a damaged stream": ("small:build stream.npz", "stream.npz: cannot be read: Error -3 while"),
    "NPZ with a damaged beginning": ("small:build start.npz", "start.npz: cannot be read: Error -3 while"),
    "NPZ called NPY": ("small:build archive.npy", "archive.npy: is an archive of arrays; its name should end in .npz"),
    "NPZ in Fortran order": ("small:build fortran.npz", "in Fortran order"),
    "folder without images": ("small:pictures nothing", "nothing: has no images"),
    "images of two sizes": ("small:pictures sizes", "has shape (1, 5, 4), but a.png has (1, 4, 4)"),
    "colour among grey images": ("small:pictures colours", "has shape (3, 4, 4), but a.png"),
    "damaged image": ("small:pictures torn", "not an image that can be read"),
    "image that is text": ("small:pictures fake", "not an image that can be read"),
    "image with 16 bits": ("small:pictures deep", "images of mode I;16"),
    "CSV that is a pipe": ("small:build pipe.csv", "pipe.csv: is a pipe; copy what it gives to a file"),
    "Parquet that is a pipe": ("small:build pipe.parquet", "pipe.parquet: is a pipe"),
    "NPY that is a pipe": ("small:build pipe.npy", "pipe.npy: is a pipe"),
    "NPZ that is a pipe": ("small:build pipe.npz", "pipe.npz: is a pipe"),
    "image that is a pipe": ("small:pictures pipes", "a.png: is a pipe"),
    "image that is a dead link": ("small:pictures dead", "a.png: no such file"),
    "data that is a device": ("small:build /dev/zero", "is a device"),
    "data that is a link to itself": ("small:build loop.csv", "Too many levels of symbolic links"),
    "data with a name that is too long": (f"small:build {'long' * 100}.csv", "File name too long"),
    "data with a name that is not UTF-8": ("small:build \udcff.csv", "DATA is '\\udcff.csv', which is not UTF-8"),
    "image with a name that is not UTF-8": ("small:pictures latin", "the name '\\udcff.png' is not UTF-8"),
    "line that is too long": ("small:build rows.csv --max-unpacked 100", "rows.csv: a line takes"),
    "row that is too large": ("small:build rows.npy --max-unpacked 31B", "rows.npy: a row takes 32.0 bytes"),
    "NPY with a vast row": ("small:build vast.npy", "a row takes 8,192.0 GiB when it is read, and --max-unpacked"),
    "NPZ with a vast row": ("small:build vast.npz", "a row takes 8,192.0 GiB"),
    "NPZ that is a bomb": ("small:build bomb.npz", "a row takes 2.0 GiB when it is read, and --max"),
    "NPZ that ends early": ("small:build early.npz", "early.npz: is truncated"),
    "NPY of 2**62 rows": ("small:build giant.npy", "ends before an array of shape (4611686018427387904, 4)"),
    "NPZ of 2**62 rows": ("small:build giant.npz", "ends before an array of shape (4611686018427387904, 4)"),
    "NPY of -1 rows": ("small:build minus.npy", "no array has the shape in its header"),
    "NPZ of -1 rows": ("small:build minus.npz", "no array has the shape in its header"),
    "NPY of True rows": ("small:build true.npy", "no array has the shape in its header"),
    "NPZ of True rows": ("small:build true.npz", "no array has the shape in its header"),
    "NPY of 70 dimensions": ("small:build many.npy", "no array has the shape in its header"),
    "NPZ of 70 dimensions": ("small:build many.npz", "no array has the shape in its header"),
    "NPY of another version": ("small:build newer.npy", "of another version of NumPy's format, (7, 0)"),
    "NPY with a header of text": ("small:build tongues.npy", "fortran_order is not a valid bool"),
    "NPY of rows without entries": ("small:build hollow.npy", "has shape (10, 0); rows along dimension 0 and inputs"),
    "NPZ of another version": ("small:build version.npz", "zip file version 10.0"),
    "NPZ with damaged LZMA": ("small:build lzma.npz", "write it by numpy.savez_compressed"),
    "NPZ with damaged BZIP2": ("small:build bz2.npz", "write it by numpy.savez_compressed"),
    "Parquet with a name that is not UTF-8": ("small:build name.parquet", "name.parquet: 'utf-8' codec can't decode"),
    "Parquet with ids that are not UTF-8": ("small:build ids.parquet --id n", "Invalid UTF8 sequence"),
    "image that is a program": (
        "small:pictures eps", "not an image that can be read; BMP, GIF, JPEG, PNG, TIFF, WEBP are known"),
    "image that is too large": ("small:pictures large", "the image takes 1.1 GiB when it is read, and --max-unpacked"),
    "image with too much text": ("small:pictures texts", "Decompressed data too large"),
    # the model
    "factory that leaves": ("small:leaves rows.csv", "its code called sys.exit before the job was done"),
    "model that leaves": ("small:Leaves rows.csv", "its code called sys.exit before the job was done"),
    "no such model": ("absent.pt2 rows.csv", "absent.pt2: there is no such file"),
    "model with a name that is too long": (f"{'long' * 100} rows.csv", "File name too long"),
    "unknown kind of model": ("rows.xlsx rows.csv", "rows.xlsx: a model is a .pt2"),
    "Keras model of the old format": ("model.h5 rows.csv", "is a Keras file of the old format, which can run any code"),
    "damaged model": ("damaged.pt2 rows.csv --trust", "is not a program of torch.export.save, or damaged"),
    "program": (
        "words.pt2 rows.csv", "is a saved program of torch.export, which can run any code when it is read: give"),
    "damaged ONNX model": ("model.onnx rows.csv", "is not an ONNX model, or damaged: "),
    "ONNX model with a NUL in a path": (
        "nul.onnx rows.csv", r"nul.onnx keeps tensors in 'a\x00b': embedded null byte"),
    "ONNX model with a path that is too long": ("long.onnx rows.csv", ": File name too long"),
    "ONNX model with tags of 40 bits": ("tags.onnx rows.csv", "tags.onnx is not an ONNX model, or damaged: "),
    "ONNX model with a path outside": ("outside.onnx rows.csv", "in '../secret.bin', outside of its folder"),
    "program by another name": ("program.pt rows.csv", "program.pt cannot be read: PytorchStreamReader failed"),
    "model without numbers": (
        "small:meta rows.csv", "small:meta: 0.weight is on the device 'meta', which keeps no numbers: give --weights"),
    "model with a buffer without numbers": ("small:Buffered rows.csv", "small:Buffered: kept is on the device 'meta'"),
    "script": ("model.ts rows.csv", "is a script of torch.jit, which can run any code"),
    "damaged script": ("model.ts rows.csv --trust", "model.ts cannot be read"),
    "pickled model": ("pickled.pt rows.csv", "is a pickled module, which can run any code"),
    "damaged pickle": ("damaged.pt rows.csv --trust", "damaged.pt cannot be read"),
    "no such module": ("absent_module:build rows.csv", "No module named 'absent_module'"),
    "file of a factory": ("small.py:build rows.csv", "by its module, not by the file: write small:build"),
    "file of a factory in a folder": ("./folder/small.py:build rows.csv", "write folder.small:build"),
    "file of a factory elsewhere": ("../small.py:build rows.csv", "write small:build, in its folder"),
    "no such factory": ("small:absent rows.csv", "has no attribute 'absent'"),
    "factory that fails": ("small:fails rows.csv", "no weights today"),
    "factory whose compiled code is damaged": ("torn:build rows.csv", "is damaged; remove the folder __pycache__"),
    "factory of a number": ("small:number rows.csv", "builds an object of type int, not a torch.nn.Module"),
    "no such weights": ("small:build rows.csv --weights absent.pt", "absent.pt: there is no such file"),
    "weights of another model": ("small:build rows.csv --weights other.pt", "other.pt does not fit small:build"),
    "damaged weights": ("small:build rows.csv --weights damaged.safetensors", "damaged.safetensors cannot be read"),
    "pickled weights": ("small:build rows.csv --weights pickled.pt", "holds more than tensors"),
    "model of bfloat16": ("small:brain rows.csv", "computes in bfloat16; models in float16, float32"),
    "model without a base": ("small:Pole rows.csv --baselines 7", "not finite where all inputs are absent"),
    "model without finite outputs": ("small:Pole poles.npy --on-bad-row skip", "for the first rows are not finite"),
    "program in training mode": ("training.pt2 rows.csv --trust", "(before torch.export.export, call model.eval())"),
    "model of two outputs": ("small:Pair rows.csv", "must return one tensor"),
    "model of a matrix": ("small:Cube rows.csv", "one dimension of them is needed"),
    "model of one number": ("small:Total rows.csv", "must return a row for each row"),
    # what is asked
    "target too large": (
        "small:build rows.csv --target 3", "--target is 3, but the model has 3 outputs; outputs are 0 to 2"),
    "target too large for the names": (
        "small:build rows.csv --target 3 --output-names x,y,z", "3 outputs; outputs are 'x', 'y', 'z'"),
    "target that is no name": (
        "small:build rows.csv --target w --output-names x,y,z", "no column 'w'; there are 'a', 'b', 'c', 'd'; outputs"),
    "target that is no name, of an NPY": (
        "small:build rows.npy --target w --output-names x,y,z", "files have; outputs are 'x', 'y', 'z'"),
    "class that has no name": (
        "small:build classes.csv --target label --drop lost --output-names no,yes,so",
        "classes.csv: the target in row 1 is 'perhaps'; outputs are 'no', 'yes', 'so'"),
    "missing class": (
        "small:build classes.csv --target lost --drop label --output-names no,yes,so",
        "no target (column 'lost') in row 1"),
    "classes without names": ("small:build classes.csv --target label --drop lost", "not a number: 'no'"),
    "classes of Parquet without names": (
        "small:build strings.parquet --target a", "not of numbers; name the outputs by --output-names"),
    "too few names": ("small:build rows.csv --output-names x,y", "has 2 names, but the model has 3 outputs"),
    "too many names": ("small:single rows.csv --output-names x,y", "has 2 names, but the model has 1 output;"),
    "empty name": ("small:build rows.csv --output-names x,,z", "--output-names: output 1 has no name"),
    "name twice": ("small:build rows.csv --output-names x,y,x", "--output-names: 'x' is there twice"),
    "names that are other numbers": (
        "small:build rows.csv --output-names 1,2,3", "output 0 is called '1', which is the number of another"),
    "names that are the other truth": (
        "small:build rows.csv --output-names True,False,so", "output 0 is called 'True', which is the number of"),
    "name that means something": (
        "small:build rows.csv --output-names x,predicted,z", "'predicted' means the largest output"),
    "no names": ("small:build rows.csv --output-names ''", "--output-names is empty"),
    "target of a single output": ("small:single rows.csv --target 1", "the model has 1 output; the only output is 0"),
    "negative target": ("small:build rows.csv --target -1", "--target is -1"),
    "target that is no column": ("small:build rows.csv --target label", "no column 'label'"),
    "target column too large": ("small:build labelled.csv --target large --drop half,missing", "column 'large' has 9"),
    "target column of fractions": ("small:build labelled.csv --target half", "the target in row 0 is 0.5"),
    "target column as an input": ("small:build rows.csv --columns a,b,c,d --target d", "'d' is the target"),
    "unknown method": ("small:build rows.csv --method guess", "there is no method 'guess'"),
    "method for a traced model": ("small:Untraceable rows.csv --method dasp", "cannot be exported to a graph"),
    "negative tolerance": ("small:build rows.csv --tolerance -1", "--tolerance is -1"),
    "tolerance that is no number": ("small:build rows.csv --tolerance NaN", "--tolerance is nan"),
    "tolerance that is text": ("small:build rows.csv --tolerance small", "Invalid value for '--tolerance'"),
    "no evaluations": ("small:build rows.csv --max-evaluations 0", "--max-evaluations is 0"),
    "too few evaluations": ("small:wide wide.npy --max-evaluations 1", "max_evaluations must be at least"),
    "no batch": ("small:build rows.csv --batch-size 0", "--batch-size is 0"),
    "no chunk": ("small:build rows.csv --chunk 0", "--chunk is 0"),
    "no threads": ("small:build rows.csv --threads 0", "--threads is 0"),
    "no workers": ("small:build rows.csv --engine ray --workers 0", "--workers is 0"),
    "workers without Ray": ("small:build rows.csv --workers 2", "--workers is for --engine ray"),
    "address without Ray": ("small:build rows.csv --ray-address auto", "--ray-address is for --engine ray"),
    "unknown engine": ("small:build rows.csv --engine spark", "--engine is 'spark'; local or ray"),
    "unknown treatment": ("small:build rows.csv --on-bad-row guess", "--on-bad-row is 'guess'"),
    "unknown device": ("small:build rows.csv --device abacus", "--device abacus cannot be used"),
    "device that computes nothing": ("small:build rows.csv --device meta", "meta cannot be used"),
    "no target": ("small:build rows.csv --target ''", "--target is empty"),
    "no id": ("small:build rows.csv --id ''", "--id is empty"),
    "limit that is no size": ("small:build rows.csv --max-unpacked much", "a size like 500M or 2G is needed"),
    "limit of nothing": ("small:build rows.csv --max-unpacked 0G", "a size like 500M or 2G is needed"),
    "too many threads": ("small:build rows.csv --threads 100000", "it can be 1024 at most"),
    "endless chunk": (f"small:build rows.csv --chunk 1{'0' * 30}", "it can be 2147483647 at most"),
    "negative seed": ("small:build rows.csv --seed -1", "--seed is -1; at least 0"),
    "seed beyond 32 bits": ("small:build rows.csv --seed 4294967296", "it can be 4294967295 at most"),
    "seed that is text": ("small:build rows.csv --seed today", "Invalid value for '--seed'"),
    "baseline of another width": ("small:build rows.csv --baselines narrow.npy", "shape (3,), those of the data (4,)"),
    "baseline without a column": (
        "small:build rows.csv --baselines narrow.csv", "--baselines: narrow.csv: no column 'd'"),
    "baseline of two rows": ("small:build rows.csv --baselines rows.csv", "has 10 rows, one is needed"),
    "no such baseline": ("small:build rows.csv --baselines absent.csv", "--baselines: absent.csv: no such file"),
    "baseline with NaN": (
        "small:build rows.csv --baselines missing.csv", "--baselines: missing.csv: column 'c' is missing or NaN"),
    "infinite baseline": ("small:build rows.csv --baselines inf", "--baselines is inf"),
    "baseline beyond the model's numbers": (
        "small:build rows.csv --baselines 1e39", "--baselines is 1e+39, which is not finite in float32"),
    "baseline beyond whole numbers": ("small:words whole.csv --baselines 1e39", "must be whole numbers"),
    "baseline that is a pipe": ("small:build rows.csv --baselines pipe.csv", "--baselines: pipe.csv: is a pipe"),
    "background that is too large": (
        "small:build rows.npy --background rows.npy --max-unpacked 300", "what has been read of it takes 320.0 bytes"),
    "background that ends early": ("small:build rows.npy --background stream.npz", "--background: stream.npz: cannot"),
    "no such background": ("small:build rows.csv --background absent.npy", "--background: absent.npy"),
    "background of another width": (
        "small:build rows.csv --background narrow.npy", "--background: rows of narrow.npy"),
    "background without rows": ("small:build rows.csv --background none.npy", "--background: none.npy has no rows"),
    "baseline and background": (
        "small:build rows.csv --background rows.npy --baselines rows.csv", "give one of them"),
    "baseline of zeros and background": (
        "small:build rows.csv --background rows.npy --baselines zero", "both say what an absent input is"),
    "background without the names of an array": (
        "small:build rows.npy --background rows.csv", "'a', 'b', 'c', 'd'; those of an array are called x0"),
    "groups that are not JSON": ("small:build rows.csv --players broken.json", "broken.json is not JSON"),
    "groups that are a list": ("small:build rows.csv --players list.json", "list.json must look like"),
    "groups without lists": ("small:build rows.csv --players flat.json", "flat.json must look like"),
    "groups without a column": ("small:build rows.csv --players skips.json", "input 'd' is of no player"),
    "groups with a column twice": ("small:build rows.csv --players twice.json", "input 'a' is listed twice"),
    "groups with a stranger": ("small:build rows.csv --players strange.json", "lists 'z', which is not an input"),
    "groups with a name twice": ("small:build rows.csv --players names.json", "two players have the same name"),
    "groups with a taken name": (
        "small:build rows.csv --players taken.json", "'gap' is the name of a column of the output"),
    "no such groups": ("small:build rows.csv --players absent.json", "absent.json: no such file"),
    "groups that are a pipe": ("small:build rows.csv --players pipe.json", "--players: pipe.json: is a pipe"),
    "mask that is a pipe": ("small:build rows.csv --players pipe.npy", "--players: pipe.npy: is a pipe"),
    "groups that are too large": (
        "small:build rows.npy --players good.json --max-unpacked 33", "--players: good.json: the file takes"),
    "groups without a group": ("small:build rows.csv --players none.json", "none.json must look like"),
    "groups with an empty one": ("small:build rows.csv --players hollow.json", "player 'one' is empty"),
    "groups with half a letter": ("small:build rows.csv --players lone.json", "'\\ud800' cannot be written in UTF-8"),
    "groups of lists of lists of …": ("small:build rows.csv --players deep.json", "deep.json is nested too deeply"),
    "groups with a list in a list": (
        "small:build rows.csv --players nested.json", "lists ['a'], which is not an input"),
    "groups with a long number": ("small:build rows.csv --players digits.json", "Exceeds the limit (4300 digits)"),
    "mask with a far player": (
        "small:build rows.csv --players far.npy", "the players 0, 1, … 8589934592, but there is no player 1"),
    "mask with a player of 64 bits": (
        "small:build rows.csv --players wrapped.npy", "0, 1, … 18446744073709551615, but there is no player 2"),
    "groups in another format": (
        "small:build rows.csv --players rows.csv", "a file of players is a .json or .npy file"),
    "mask without a player": ("small:build rows.csv --players gap.npy", "there is no player 1"),
    "mask with a negative player": ("small:build rows.csv --players negative.npy", "-1 is below 0"),
    "mask of another width": ("small:build rows.csv --players short.npy", "does not fit rows of shape (4,)"),
    "mask of fractions": ("small:build rows.csv --players rows.npy", "player numbers must be integers"),
    "mask that is an archive": ("small:build rows.csv --players archive.npy", "archive.npy: is an archive of arrays"),
    "named groups of images": (
        "small:pictures images --players good.json", "names columns, but the data has none"),
    "input with a taken name": ("small:build taken.csv", "'prediction' is the name of a column of the output"),
    "input that may be the id": ("small:build id.csv", "give --id id if it names the rows"),
    "input that may be the target": ("small:build target.csv", "give --target target if it has classes"),
    "mean that is a word": ("small:build rows.csv --mean much", "--mean is 'much'; a finite number, some with commas"),
    "mean that is a pair": ("small:build rows.csv --mean 1/2", "or imagenet, is needed"),
    "mean that is nothing": ("small:build rows.csv --mean ''", "--mean is empty"),
    "std of 0": ("small:build rows.csv --mean 1 --std 0", "--std is 0; numbers above 0 are needed"),
    "std below 0": ("small:build rows.csv --std 1,2,3,-4", "numbers above 0 are needed"),
    "mean that is NaN": ("small:build rows.csv --mean nan --std 1", "--mean is 'nan'; a finite number"),
    "mean of too few columns": ("small:build rows.csv --mean 1,2", "has 2 numbers, but a row has 4 columns; as many"),
    "mean of too many channels": ("small:pictures images --mean imagenet", "but a row has 1 channels; as many"),
    "whole numbers normalised": ("small:words whole.csv --std 3", "small:words takes whole numbers, of which --mean"),
    "whole numbers of a program normalised": (
        "words.pt2 whole.csv --std 3 --on-bad-row skip --trust", "words.pt2 takes whole numbers, of which --mean"),
    "fractions among whole numbers": (
        "words.pt2 rows.csv --on-bad-row skip --trust", "which is not a whole number in int64 in row 0 (the first row"),
    "infinity among whole numbers": ("small:words infinite.csv", "inf, which is not finite in int64 in row 0"),
    "players of an unknown kind": ("small:build rows.csv --players pair:2", "superpixel:60, window:25 or channel"),
    "players without a size": ("small:build rows.csv --players window", "--players is window: players are 'window'"),
    "players of no size": ("small:build rows.csv --players window:0", "--players is window:0: "),
    "players that are blocks of a table": ("small:build rows.csv --players block:2", "--players is block:2: "),
    "players that are superpixels of a table": ("small:build rows.csv --players superpixel:2", "superpixel:2: "),
    "players that are channels of a table": ("small:build rows.csv --players channel", "columns have no channels"),
    "players along no dimension": ("small:build rows.csv --players channel,dim=3", "--players is channel,dim=3: "),
    "players by a prefix that no column has": ("small:build rows.csv --players prefix:z", "no column begins with 'z_'"),
    "players by no prefix": ("small:build rows.csv --players prefix:", "--players is prefix:: no column"),
    "players by prefixes of images": ("small:pictures images --players prefix:a", "the data has no columns whose"),
    "players with a taken name": ("small:build gap.csv --players prefix:gap", "'gap' is the name of a column of"),
    # the output
    "output that is no table": ("small:build rows.csv -o out.txt", "a name that ends in .parquet or .csv is needed"),
    "CSV output of images": ("small:pictures images -o out.csv", "rows of shape (1, 4, 4) have no columns"),
    "CSV output beside a file of somebody else": (
        "small:build rows.csv -o skips.csv", "skips.csv.json: exists, but is damaged or was not written by dasp"),
    "CSV output whose job would replace the groups": (
        "small:build rows.csv --players beside.csv.json -o beside.csv --overwrite",
        "beside.csv.json is a file that is read (--players)"),
    "CSV output of something else": ("small:build rows.csv -o whole.csv", "was not written by dasp explain"),
    "CSV output beside a folder": ("small:build rows.csv -o folder.csv", "folder.csv.json: is not a file"),
    "data with a column's name": ("small:build data.csv --with-data", "'data:d' is the name of a column of the output"),
    "page with a name that is too long": (
        f"small:build rows.csv --report {'p' * 300}.html", "File name too long"),
    "page that is a pipe": ("small:build rows.csv --report pipe.html", "pipe.html: is not a file, and cannot be"),
    "Parquet without formulas": (
        "small:build rows.csv --safe-csv", "--safe-csv is for a .csv output, and --output is out.parquet"),
    "output in no folder": ("small:build rows.csv -o absent/out.parquet", "there is no folder absent"),
    "output with a name that is too long": (
        f"small:build rows.csv -o {'long' * 100}.parquet", "File name too long"),
    "output with a name that is not UTF-8": ("small:build rows.csv -o \udcff.parquet", "which is not UTF-8"),
    "output that is a folder": ("small:build rows.csv -o folder.parquet", "is not a file, and cannot be replaced"),
    "output that cannot be written": ("small:build rows.csv -o /proc/out.parquet", "cannot be written"),
    "output of something else": ("small:build rows.csv -o nulls.parquet", "was not written by dasp explain"),
    # texts
    "no such column of texts": ("small:build said.csv --text words --tokenizer words", "no column 'words'; there are"),
    "texts that are numbers": (
        "small:build said.csv --text n --tokenizer words", "column 'n' has nothing but numbers; name another"),
    "tokenizer that searches without end": (
        "small:build repeated.csv --text said --tokenizer endless",
        "the tokenizer failed at 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa': "),
    "damaged tokenizer": (
        "small:build full.csv --text said --tokenizer broken", "broken cannot be read as a tokenizer"),
    "Parquet with numbers for texts": (
        "small:build whole.parquet --text a --tokenizer words", "column 'a' is of type float, not of texts"),
    "texts of an NPY": ("small:build rows.npy --text a --tokenizer words", "--text names columns, but rows.npy"),
    "texts that are the target": (
        "small:build said.csv --text said --target said --tokenizer words", "'said' is the target"),
    "empty text": ("small:build said.csv --text said --tokenizer words", "column 'said' is missing or empty in row 1"),
    "texts without a tokenizer": ("small:build said.csv --text said", "has no tokenizer of its own: name the folder"),
    "no such tokenizer": (
        "small:build said.csv --text said --tokenizer absent", "--tokenizer: absent: there is no such folder"),
    "folder without a tokenizer": (
        "small:build said.csv --text said --tokenizer nothing", "nothing: has no tokenizer, such as a tokenizer.json"),
    "folder without a model": ("words said.csv --text said", "words: is a folder without config.json"),
    "folder with an adapter": ("adapter said.csv --text said", "adapter: has an adapter: merge it with its model"),
    "model of texts without texts": ("language said.csv", "which takes texts: name their column by --text"),
    "model of texts without a tokenizer": ("language said.csv --text said", "language: has no tokenizer"),
    "damaged model of texts": (
        "language full.csv --text said --tokenizer words", "language cannot be read as a model for the classification"),
    "texts for a program": (
        "damaged.pt2 said.csv --text said --trust", "a model of texts is a folder of a Hugging Face model"),
    "texts for a model of numbers": (
        "small:build full.csv --text said --tokenizer words", "takes no input_ids or no attention_mask"),
    "words of numbers": ("small:build rows.csv --players word", "is for texts: name their column by --text"),
    "tokenizer of numbers": ("small:build rows.csv --tokenizer words", "--tokenizer is for texts"),
    "absent pieces of numbers": ("small:build rows.csv --baselines mask", "mask: no such file or folder"),
    "blocks of texts": ("small:build said.csv --text said --players block:8", "texts have word, token, sentence"),
    "groups of texts": ("small:build said.csv --text said --players good.json", "texts have word, token, sentence"),
    "baseline of texts": (
        "small:build said.csv --text said --baselines zero", "--baselines zero is for numbers; texts have mask"),
    "background of texts": (
        "small:build said.csv --text said --background rows.npy", "--background is for numbers, and --text"),
    "texts that are normalised": (
        "small:build said.csv --text said --std 2", "--std is for numbers, and --text"),
    "columns beside texts": ("small:build said.csv --text said --columns n", "--columns is for numbers, and --text"),
    "data of texts": ("small:build said.csv --text said --with-data", "--with-data is for numbers, and --text"),
    "CSV output of texts": ("small:build said.csv --text said -o out.csv", "texts have different numbers of pieces"),
    # the command
    "no data": ("small:build", "Missing argument 'DATA'"),
    "unknown option": ("small:build rows.csv --speed 3", "No such option: --speed"),
}  # fmt: skip

# The same of `dasp audit`. Of the files of values, done.csv is an output of dasp explain.
AUDITS: dict[str, tuple[str, str]] = {
    "no such file": ("absent.csv", "absent.csv: no such file"),
    "file that is a folder": ("images", "images: is a folder; a file is needed"),
    "values without a record": ("rows.csv", "has no record of dasp explain, so --model and --data must say what"),
    "values without data": ("rows.csv --model small:build", "so --data must say what the values are of"),
    "record of another version": ("newer.parquet", "has a record of version 9, and this version of dasp reads"),
    "output that was changed": ("edited.csv", "edited.csv: cannot be read: has changed since it was written"),
    "output of texts": ("texts.parquet", "texts.parquet: is of texts, and audits are of rows of numbers"),
    "output whose data is elsewhere": ("lost.csv", "was made with gone.csv, which is neither beside it nor here"),
    "output of other data": ("done.csv --data rows.csv", "was made of another file than the one that DATA names"),
    "output of another model": ("done.csv --model small:wide", "rows of done-rows.csv, of shape (4,)"),
    "output of a model with other weights": (
        "done.csv --model small:unseeded", "was made of a model with other parameters than small:unseeded has"),
    "option that the record has": ("done.csv --target 1", "its record says what --target was: leave it out, not '1'"),
    "option of a file that was not read": ("done.csv --background rows.npy", "what --background was: leave it out"),
    "values of too few columns": (
        "narrow.csv --model small:build --data rows.csv", "narrow.csv: no column 'd'; there are 'a', 'b', 'c'"),
    "values of too few rows": (
        "good.csv --model small:build --data rows.csv", "has 2 rows, and rows.csv has 10: give both a column of ids"),
    "values with ids only in the data": (
        "rows.csv --model small:build --data named.csv --id 'the name'", "rows.csv: has no column 'the name' (--id)"),
    "values of a row that is not there": (
        "stranger.csv --model small:build --data named.csv --id 'the name'", "row of id P77, which named.csv has not"),
    "values that are missing": (
        "missing.csv --model small:build --data good.csv", "a value is missing or not finite in the row of id 1"),
    "values that are text": ("text.csv --model small:build --data good.csv", "not a number: 'two'"),
    "values of another shape": (
        "cube.npy --model small:build --data rows.npy", "rows have the shape (2, 2); (4,) is needed, that of the data"),
    "values of images in a table": (
        "rows.csv --model small:pictures --data images", "players here have no names: write values as a .npy"),
    "unknown kind of values": ("rows.xlsx --model small:build --data rows.csv", "unknown kind of file '.xlsx'"),
    "values that are a pipe": ("pipe.csv --model small:build --data rows.csv", "pipe.csv: is a pipe"),
    "too few evaluations": ("done.csv --evaluations 3", "Invalid value for '--evaluations'"),
    "no rows": ("done.csv --rows 0", "Invalid value for '--rows'"),
    "model without finite coalitions": (
        "poles.npy --model small:Pole --data poles.npy --baselines 7", "poles.npy: cannot be audited: "),
}  # fmt: skip
